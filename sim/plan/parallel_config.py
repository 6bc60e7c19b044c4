"""Parallel configuration: degrees, schedule, microbatches, ZeRO stage and switches; `sim.plan.rank_numbering` numbers ranks."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from sim import compression
from sim.errors import NotDefined, NotModelled, OptionError, PlanError
from sim.field_changes import changed
from sim.hardware.memory_facts import MEGATRON, MemoryFacts
from sim.plan import schedules
from sim.plan.context_parallelism import CP_ALGORITHMS, HYBRID
from sim.plan.expert_parallelism import ExpertParallelism
from sim.plan.offloading import check_words
from sim.plan.recomputation import Recomputation, check_recomputation
from sim.plan.stage_microbatches import StageMicrobatches, check_microbatches
from sim.plan.stage_options import StageOptions, check_stage_options
from sim.plan.unlike_degrees import check_degrees
from sim.plan.unlike_experts import check_stage_experts

RECOMPUTE = ("none", "selective", "full")
"""Activations recomputed in the backward: none, the attention core, or whole layers; names as in Megatron-LM."""
BLOCK = "block"
"""Recomputation of some whole layers of each stage, `recompute` full with `recompute_layers`; as the value of a plan's pins: of
as few as memory allows. Megatron-LM has it as --recompute-method block."""
CUDA_GRAPHS = ("full_iteration", "attn", "mlp", "moe", "moe_router", "moe_preprocess")
"""Scopes of CUDA graphs (Megatron-Core's --cuda-graph-scope). The graph of the whole iteration leaves no launches, `attn` and
`mlp` take away their share of those of a dense layer (`sim.kernels.launches.GRAPHED`). Others change nothing here."""
ATTENTION = ("flash", "unfused")
"""Attention kernels: fused, or separate ones that keep the scores."""
GRADIENT_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}
"""Gradient precision -> bytes of one gradient value."""
USUAL_GRADIENTS = {"fp16": "fp16"}
"""Precision -> Megatron-LM's default gradient precision: fp16 keeps fp16; others, not listed, accumulate in fp32."""
ZERO_STAGES = (0, 1, 2, 3)
"""ZeRO stages (arXiv 1910.02054): shard nothing, optimizer state, gradients too, weights too."""
POSITIVE = ("tp", "pp", "dp", "cp", "ep", "vpp", "microbatch_size")
"""Fields of a configuration that are at least 1."""
KNOWN = {
    "recompute": RECOMPUTE, "attention": ATTENTION, "gradient_precision": tuple(GRADIENT_BYTES), "cp_algo": CP_ALGORITHMS,
}  # fmt: skip
"""Fields of a configuration -> their known values."""


@dataclass(frozen=True, slots=True)
class ParallelConfig(ExpertParallelism, StageOptions, Recomputation, StageMicrobatches):
    """Parallel degrees and switches of a training run; `num_microbatches` has one entry per data-parallel replica.

    `zero_shard_size` is the number of ranks over which ZeRO shards, if not all dp x cp: every block of that many consecutive
    ranks holds a whole copy (HSDP, arXiv 2304.11277, section 3.2.2; Megatron-LM's --num-distributed-optimizer-instances).
    `tied_shards`: end stages sum shards of a tied embedding's gradient, behind the reduce-scatter, not the whole gradient.
    `recompute_layers`: `recompute` full is for so many layers of each stage only, one number or one for each (virtual) stage; a
    stage with fewer layers recomputes all (Megatron-Core's --recompute-method block --recompute-num-layers). Empty: all layers.
    `recompute_modules`: what `recompute` selective recomputes of each layer (`sim.plan.recomputation.MODULES`). Empty: the
    attention core. `cuda_graphs`: what is launched as a graph (`CUDA_GRAPHS`). `offload`: what hosts keep (`offloading.WORDS`).
    `stage_zero` and `stage_offload`: ZeRO stage and offload (a word of `sim.plan.offloading.CHOICES`) of each pipeline rank,
    where they differ; `zero_stage` is then the largest, and `offload` all that some stage offloads. Empty: all are equal.
    `stage_recompute`: recomputation of each pipeline rank, where it differs (`sim.plan.recomputation`); `recompute` is the most
    of it. `stage_microbatch_size`: samples of a microbatch of each pipeline rank, where they differ
    (`sim.plan.stage_microbatches`). `message_compression`: of messages between clusters.
    Facts of the software (`sim.hardware.stack`): `all_reduces`: ZeRO 1 sums whole gradients on every rank and drops what others
    own. `tp_overlap`: the collectives of tensor parallelism overlap the products beside them; `own_tp_overlap`: what the plan
    itself says of that, if it does. `tp_backward_overlap`: with sequence parallelism, input gradients are scattered beside
    products of weight gradients. `copied_sequences`: gathers and scatters of sequence parallelism copy. `gathered_keys`: cp
    ranks gather keys and values at once. `whole_latents`: each tp rank makes all latent vectors. `separate_qkv`, `_gate` and
    `_scatters`: products with sums of their own (`sim.kernels.input_sums`). `early_stop`: recomputation ends before a layer's
    last product. `whole_messages`: without sequence parallelism tp ranks send whole messages, not slices
    (`payloads.message_bytes`); `held_receivers`: messages hold receivers, too. `fp8_param_gather`: weights of fp8 products are
    gathered as 1 byte each. `current_scaling`: ranks find the largest values of what they gather in fp8 together;
    `amax_reduction`: those of all after a pass. `memory`: what it keeps beyond Megatron-LM. `refuses`: plans it cannot run.
    Raises PlanError if values are unknown or contradict each other, NotDefined if no schedule or reduction exists, NotModelled
    if their costs are not modelled."""

    vpp: int = 1
    schedule: str = "1f1b"
    microbatch_size: int = 1
    num_microbatches: tuple[int, ...] = (1,)
    zero_stage: int = 1
    zero_shard_size: int | None = None
    recompute: str = "none"
    recompute_layers: tuple[int, ...] = ()
    recompute_modules: tuple[str, ...] = ()
    sequence_parallel: bool = False
    overlap_grad_reduce: bool = True
    overlap_param_gather: bool = True
    attention: str = "flash"
    gradient_precision: str = "fp32"
    all_reduces: bool = False
    tied_shards: bool = False
    cuda_graphs: tuple[str, ...] = ()
    cp_algo: str = CP_ALGORITHMS[0]
    offload: tuple[str, ...] = ()
    stage_zero: tuple[int, ...] = ()
    stage_offload: tuple[str, ...] = ()
    stage_recompute: tuple[str, ...] = ()
    stage_microbatch_size: tuple[int, ...] = ()
    message_compression: str = compression.NONE
    tp_overlap: bool = False
    own_tp_overlap: bool | None = None
    tp_backward_overlap: bool = False
    copied_sequences: bool = False
    gathered_keys: bool = False
    whole_latents: bool = False
    separate_qkv: bool = False
    separate_gate: bool = False
    separate_scatters: bool = False
    early_stop: bool = False
    whole_messages: bool = False
    held_receivers: bool = False
    fp8_param_gather: bool = False
    current_scaling: bool = False
    amax_reduction: bool = False
    memory: MemoryFacts = MEGATRON
    refuses: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if min(self.tp, self.pp, self.dp, self.cp, self.ep, self.vpp, self.microbatch_size) < 1:
            key = next(key for key in POSITIVE if getattr(self, key) < 1)
            raise PlanError(f"{key} must be at least 1, not {getattr(self, key)}")
        self.check_experts(self.sequence_parallel, keeps_domain=self.cp > 1 and self.cp_algo == HYBRID)
        if self.attention != "flash" and max((self.cp, *self.stage_cp)) > 1:
            raise PlanError(f"cp {self.cp} needs attention flash: its ring exchanges keys and values of fused attention")
        if self.zero_stage not in ZERO_STAGES:
            raise PlanError(f"zero_stage {self.zero_stage} is unknown; known: 0, 1, 2, 3")
        check_degrees(self, self.microbatch_size)
        check_stage_experts(self)
        _check_shards(self)
        check_recomputation(self, RECOMPUTE)
        _check_messages(self)
        check_words(self.offload)
        check_stage_options(self, ZERO_STAGES)
        if self.cp_algo == HYBRID and (self.stage_cp or self.gathered_keys):
            raise NotModelled("cp_algo hybrid is modelled with one cp for all stages, and not with keys gathered at once")
        for scope in self.cuda_graphs:
            if scope not in CUDA_GRAPHS:
                raise PlanError(f"cuda_graphs {scope!r} is unknown; known: {', '.join(CUDA_GRAPHS)}")
        for key, values in KNOWN.items():
            if getattr(self, key) not in values:
                raise PlanError(f"{key} {getattr(self, key)!r} is unknown; known: {', '.join(values)}")
        check_microbatches(self)
        if self.reduces_each_microbatch and len(set(self.num_microbatches)) > 1:
            raise NotDefined(f"zero_stage {self.zero_stage} reduces every microbatch, so all replicas need the same number")
        if self.vpp > 1 and not schedules.get(self.schedule).CHUNKED:
            raise NotDefined(f"schedule {self.schedule} has one stage per rank; vpp {self.vpp} needs schedule interleaved")
        _check_pairs(self)

    def __hash__(self) -> int:
        """Hash of a few fields only, computed once, for speed: many results are cached by configuration."""
        try:
            return self._hash
        except AttributeError:
            degrees = self.tp, self.pp, self.dp, self.cp, self.ep, self.vpp, self.microbatch_size, self.zero_stage
            others = self.schedule, self.recompute, self.recompute_layers, self.overlap_param_gather, self.stage_tp
            object.__setattr__(self, "_hash", hash((*degrees, *others)))
            return self._hash

    def recomputing(self, recompute: str) -> ParallelConfig:
        """The configuration with another recomputation, of all layers."""
        return _recomputing(self, recompute)

    @property
    def recomputation(self) -> str:
        """`recompute`, `BLOCK` where it is of some layers of each stage only, or "by stage"."""
        return "by stage" if self.stage_recompute else BLOCK if self.recompute_layers else self.recompute

    def by_recomputation(self, layers: int) -> tuple[tuple[int, ParallelConfig], ...]:
        """(number, configuration) of the layers of a stage that are recomputed alike: those in full, then the others."""
        if not self.recompute_layers:
            return ((layers, self),)
        again = self.recomputed(layers)
        return (again, self.recomputing("full")), (layers - again, self.recomputing("none"))

    @property
    def shards(self) -> int:
        """Ranks over which ZeRO shards the optimizer state of dense weights (ZeRO 2: gradients too; ZeRO 3: weights too); where
        stages have unlike dp, those of a stage with the smallest (`of_pp_rank` has those of each)."""
        return self.zero_shard_size or self.gradient_ranks

    @property
    def shards_parameters(self) -> bool:
        """Whether weights are sharded: ZeRO 3 (FSDP) over more than one rank, which gathers each layer's weights before use."""
        return self.zero_stage == 3 and self.sums_gradients

    @property
    def overlaps_from_host(self) -> bool:
        """Whether the host launches layers whose exchange of tokens overlaps another microbatch (`sim.kernels.launches`)."""
        launched = self.ep > 1 and "full_iteration" not in self.cuda_graphs and self.dispatcher != "allgather"
        return launched and self.overlap_expert_communication

    @property
    def reduction(self) -> str:
        """Collective that sums gradients: where ZeRO shards the optimizer state, each rank needs its own part of them only."""
        whole = self.zero_stage == 0 or (self.zero_stage == 1 and self.all_reduces and self.zero_shard_size is None)
        return "all_reduce" if whole else "reduce_scatter"

    @property
    def reduces_each_microbatch(self) -> bool:
        """Whether every microbatch reduces gradients: ZeRO 2 and 3 keep no whole one (arXiv 1910.02054, section 5.2)."""
        return self.zero_stage >= 2 and self.sums_gradients

    @property
    def reduces_behind(self) -> bool:
        """Whether gradients are reduced bucket by bucket, overlapped with the backward."""
        return self.overlap_grad_reduce and self.sums_gradients

    @property
    def reduces_between(self) -> bool:
        """Whether each microbatch waits for the reduction of its gradients: ZeRO 2 and 3 that overlap nothing."""
        return self.reduces_each_microbatch and not self.reduces_behind

    @property
    def gathers_between(self) -> bool:
        """Whether each layer's passes wait for the gather of its weights: ZeRO 3 that overlaps nothing."""
        return self.shards_parameters and not self.overlap_grad_reduce

    @property
    def gathers_ahead(self) -> bool:
        """Whether sharded weights are gathered bucket by bucket after the optimizer step, overlapped with the next forward."""
        ahead = self.overlap_grad_reduce if self.zero_stage == 3 else self.overlap_param_gather and self.zero_stage >= 1
        return self.sums_gradients and ahead

    @property
    def num_stages(self) -> int:
        """Number of stages, virtual ones included."""
        return self.pp * self.vpp

    def rank_of(self, stage: int) -> int:
        """The pipeline rank that holds a stage."""
        return schedules.rank_of(self.schedule, stage, self.pp)

    def of_pp_rank(self, pp_rank: int) -> ParallelConfig:
        """The configuration of a pipeline rank by itself: its degrees, options, and samples of a microbatch.

        Raises PlanError, which names the rank, where they do not fit together."""
        is_alike = not (self.has_stage_degrees or self.stage_ep or self.stage_etp or self.has_stage_options)
        return self if is_alike else _of_pp_rank(self, pp_rank)

    def microbatches_of(self, dp_cp: int, pp_rank: int) -> int:
        """Number of microbatches, of a pipeline rank's own size, of the replica to which one of its dp_cp indices belongs."""
        return self.num_microbatches[dp_cp * self.dp // self.dp_cp_of(pp_rank)] * self.cuts_of(pp_rank)


@functools.lru_cache(maxsize=1024)
def _of_pp_rank(config: ParallelConfig, pp_rank: int) -> ParallelConfig:
    tp, split, (kind, counts, modules) = config.tp_of(pp_rank), config.split_of(pp_rank), config.recomputation_of(pp_rank)
    try:
        return changed(
            config, tp=tp, dp=config.dp * split, cp=config.cp_of(pp_rank), stage_tp=(), stage_dp=(), stage_cp=(),
            microbatch_size=config.size_of(pp_rank) // split, stage_microbatch_size=(),
            num_microbatches=tuple(n * config.cuts_of(pp_rank) for n in config.num_microbatches for _ in range(split)),
            sequence_parallel=config.sequence_parallel and tp > 1, zero_stage=config.zero_of(pp_rank), stage_zero=(),
            offload=config.offload_of(pp_rank), stage_offload=(),
            recompute=kind, recompute_layers=counts, recompute_modules=modules, stage_recompute=(),
            ep=config.ep_of(pp_rank), etp=config.etp_of(pp_rank), stage_ep=(), stage_etp=(),
        )  # fmt: skip
    except PlanError as error:
        raise type(error)(f"config: pipeline rank {pp_rank}: {error}") from None


@functools.lru_cache(maxsize=4096)
def _recomputing(config: ParallelConfig, recompute: str) -> ParallelConfig:
    return changed(config, recompute=recompute, recompute_layers=(), recompute_modules=(), stage_recompute=())


def _check_pairs(config: ParallelConfig) -> None:
    if not schedules.is_paired(config.schedule):
        return
    if config.overlap_expert_communication:
        raise PlanError(f"overlap_expert_communication with schedule {config.schedule}: its pairs overlap it; leave it out")
    if config.zero_stage >= 2:
        raise NotModelled(f"schedule {config.schedule} is not modelled with zero_stage {config.zero_stage}; 0 or 1")


def _check_messages(config: ParallelConfig) -> None:
    if config.message_compression == compression.NONE:
        return
    try:
        compression.code(config.message_compression, 2)
    except OptionError as error:
        raise PlanError(f"message_compression: {error}") from None


def _check_shards(config: ParallelConfig) -> None:
    if config.tied_shards and config.zero_stage == 0:
        raise PlanError("tied_shards with zero_stage 0 has no effect: no rank owns a shard of the gradient; leave it out")
    if (size := config.zero_shard_size) is None:
        return
    named = f"zero_shard_size {size}"
    if config.zero_stage == 0 or size < 2:
        raise PlanError(f"{named} with zero_stage {config.zero_stage} has no effect; leave it out")
    if config.stage_cp:
        raise NotModelled(f"{named} with stage_cp is not modelled; one of both")
    if config.dp_cp % size:
        raise PlanError(f"{named} does not divide dp {config.dp} x cp {config.cp}, the ranks that share the state")
    if config.splits_experts and size < config.dp_cp:
        own = f" and etp {config.etp}" if config.etp else ""
        raise NotModelled(f"{named} is not modelled with ep {config.ep}{own}: all ranks with an expert share its state")
