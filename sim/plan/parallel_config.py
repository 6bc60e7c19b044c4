"""TODO sim.plan.parallel_config."""

from __future__ import annotations

from dataclasses import dataclass

from sim.errors import PlanError
from sim.plan import schedules

RECOMPUTE = ("none", "selective", "full")
ATTENTION = ("flash", "unfused")
GRADIENT_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}
USUAL_GRADIENTS = {"fp16": "fp16"}
"""Precision -> gradient precision that Megatron-LM uses unless told otherwise: fp16 keeps fp16, all others sum in fp32."""
ZERO_STAGES = (0, 1, 2, 3)


@dataclass(frozen=True, slots=True)
class ParallelConfig:
    """How the work is divided. `num_microbatches` holds one number for each data-parallel replica.

    `zero_shard_size` ranks share what ZeRO shares, where not all dp x cp do: blocks of consecutive ranks hold it whole each
    (HSDP, arXiv 2304.11277, section 3.2.2; Megatron-LM's --num-distributed-optimizer-instances)."""

    tp: int = 1
    pp: int = 1
    dp: int = 1
    cp: int = 1
    ep: int = 1
    vpp: int = 1
    schedule: str = "1f1b"
    microbatch_size: int = 1
    num_microbatches: tuple[int, ...] = (1,)
    zero_stage: int = 1
    zero_shard_size: int | None = None
    recompute: str = "none"
    sequence_parallel: bool = False
    overlap_grad_reduce: bool = True
    overlap_param_gather: bool = True
    attention: str = "flash"
    gradient_precision: str = "fp32"

    def __post_init__(self) -> None:
        for key in ("tp", "pp", "dp", "cp", "ep", "vpp", "microbatch_size"):
            if getattr(self, key) < 1:
                raise PlanError(f"{key} must be at least 1, not {getattr(self, key)}")
        if self.dp_cp % self.ep:
            raise PlanError(f"ep {self.ep} does not divide dp {self.dp} x cp {self.cp}, from which it takes its ranks")
        if self.cp > 1 and self.attention != "flash":
            raise PlanError(f"cp {self.cp} exchanges keys and values around a ring of fused attention; attention must be flash")
        if self.zero_stage not in ZERO_STAGES:
            raise PlanError(f"zero_stage {self.zero_stage} is unknown; known: 0, 1, 2, 3")
        self._check_shards()
        known = {"recompute": RECOMPUTE, "attention": ATTENTION, "gradient_precision": tuple(GRADIENT_BYTES)}
        for key, values in known.items():
            if getattr(self, key) not in values:
                raise PlanError(f"{key} {getattr(self, key)!r} is unknown; known: {', '.join(values)}")
        if len(self.num_microbatches) != self.dp:
            raise PlanError(f"num_microbatches has {len(self.num_microbatches)} numbers for dp {self.dp}; one per replica")
        if min(self.num_microbatches) < 1:
            raise PlanError("every replica needs at least one microbatch")
        if self.reduces_each_microbatch and len(set(self.num_microbatches)) > 1:
            raise PlanError(f"zero_stage {self.zero_stage} reduces every microbatch: all replicas need equally many")
        if self.vpp > 1 and not schedules.get(self.schedule).CHUNKED:
            raise PlanError(f"schedule {self.schedule} holds one stage a rank; vpp {self.vpp} needs interleaved")
        schedules.get(self.schedule)

    def __hash__(self) -> int:
        """Of a few fields: quicker than of all, since many results are cached by configuration."""
        return hash((self.tp, self.pp, self.dp, self.vpp, self.schedule, self.microbatch_size, self.zero_stage, self.recompute))

    def _check_shards(self) -> None:
        size = self.zero_shard_size
        if size is None:
            return
        if self.zero_stage == 0 or size < 2:
            raise PlanError(f"zero_shard_size {size} with zero_stage {self.zero_stage} shares nothing; leave it out")
        if self.dp_cp % size:
            raise PlanError(f"zero_shard_size {size} does not divide dp {self.dp} x cp {self.cp}, whose ranks share the state")
        if self.ep > 1 and size < self.dp_cp:
            raise PlanError(
                f"zero_shard_size {size} is not modelled with ep {self.ep}; experts are shared by all that hold them"
            )

    @property
    def world_size(self) -> int:
        """Ranks in all."""
        return self.tp * self.pp * self.dp_cp

    @property
    def dp_cp(self) -> int:
        """Ranks of a stage that hold the same dense weights and reduce their gradients together."""
        return self.dp * self.cp

    @property
    def shards(self) -> int:
        """Ranks that share the optimizer state of dense weights (with ZeRO 2 the gradients, with ZeRO 3 the weights too)."""
        return self.zero_shard_size or self.dp_cp

    @property
    def edp(self) -> int:
        """Ranks of a stage that hold the same experts and reduce their gradients together (expert data parallel)."""
        return self.dp_cp // self.ep

    @property
    def shards_parameters(self) -> bool:
        """ZeRO 3 over more than one rank (FSDP): each layer's weights are gathered before they are used."""
        return self.dp_cp > 1 and self.zero_stage == 3

    @property
    def reduces_each_microbatch(self) -> bool:
        """ZeRO 2 and 3 keep no whole gradient, so each microbatch's backward reduces it (arXiv 1910.02054, section 5.2)."""
        return self.dp_cp > 1 and self.zero_stage >= 2

    @property
    def reduces_behind(self) -> bool:
        """Gradients are reduced bucket by bucket behind the backward."""
        return self.dp_cp > 1 and (self.overlap_grad_reduce or self.zero_stage >= 2)

    @property
    def gathers_ahead(self) -> bool:
        """The weights that an optimizer step left scattered are gathered bucket by bucket ahead of the next forward."""
        return self.dp_cp > 1 and ((self.overlap_param_gather and self.zero_stage >= 1) or self.zero_stage == 3)

    @property
    def num_stages(self) -> int:
        """Stages in all, virtual ones included."""
        return self.pp * self.vpp

    def place(self, rank: int) -> tuple[int, int, int]:
        """(tp, dp_cp, pp) index of a rank; dp_cp = cp index + cp x dp index = ep index + ep x expert-data-parallel index."""
        return rank % self.tp, rank // self.tp % self.dp_cp, rank // (self.tp * self.dp_cp)

    def rank(self, tp: int, dp_cp: int, pp: int) -> int:
        """Rank of a (tp, dp_cp, pp) index."""
        return tp + self.tp * (dp_cp + self.dp_cp * pp)

    def microbatches_of(self, dp_cp: int) -> int:
        """Microbatches that a rank of this dp_cp index plays: those of its replica."""
        return self.num_microbatches[dp_cp // self.cp]
