"""A shape: a parallel layout without pp, because the search chooses how many stages each class of nodes has."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field, fields

from sim.field_changes import changed
from sim.hardware.memory_facts import MEGATRON, MemoryFacts
from sim.plan import schedules
from sim.plan.expert_parallelism import DISPATCHERS, matches_tp, mesh_rows, used_degrees
from sim.plan.parallel_config import BLOCK, USUAL_GRADIENTS, ParallelConfig
from sim.workload.workload import Workload


@dataclass(frozen=True, slots=True)
class Shape:
    """A parallel layout without pp: all degrees, the microbatch size, recomputation, schedule and ZeRO stage.

    With `recompute` block, each stage recomputes whole layers, as few as its memory allows; a plan has their number by stage
    (`ParallelConfig.recompute_layers`). `cluster_tp`: tensor-parallel degree of the stages on some clusters, which divides
    `tp`, the one of all others (`planner.space.unlike_tp`). The fields from `all_reduces` on
    are facts of the software and the fleet (`sim.hardware.stack.searched_facts`); those of an exchange of tokens hold where
    there is one (`config`)."""

    tp: int
    dp: int
    microbatch_size: int
    recompute: str
    schedule: str
    vpp: int
    zero_stage: int
    cp: int = 1
    ep: int = 1
    etp: int | None = None
    zero_shard_size: int | None = None
    overlap_param_gather: bool = True
    tied_shards: bool = False
    cluster_tp: tuple[tuple[str, int], ...] = ()
    offload: tuple[str, ...] = ()
    all_reduces: bool = False
    tp_overlap: bool = False
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
    dispatcher: str = DISPATCHERS[0]
    overlap_shared_experts: bool = False
    overlap_expert_communication: bool = False
    domain: int = 0
    memory: MemoryFacts = MEGATRON
    refuses: tuple[str, ...] = ()
    _hash: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        degrees = self.tp, self.dp, self.microbatch_size, self.vpp, self.zero_stage, self.cp, self.ep
        others = self.recompute, self.schedule, self.overlap_param_gather, self.tied_shards, self.cluster_tp
        object.__setattr__(self, "_hash", hash((*degrees, *others)))

    def __hash__(self) -> int:
        """Hash of some fields, computed once: many results are cached by shape."""
        return self._hash

    def __reduce__(self) -> tuple[type[Shape], tuple[object, ...]]:
        """Another process hashes texts in another way, so a pickled shape has no hash."""
        return Shape, tuple(getattr(self, one.name) for one in fields(self) if one.init)

    @property
    def slots(self) -> int:
        """Number of slots (tensor-parallel groups) of one stage."""
        return self.dp * self.cp

    @property
    def further_degrees(self) -> dict[str, int]:
        """Degrees of context and expert parallelism, where they are used (`ParallelConfig.further_degrees`)."""
        return used_degrees(self.cp, self.ep, self.etp)

    @property
    def expert_rows(self) -> int:
        """Consecutive replicas (dp x cp indices) over which the experts are divided (`ParallelConfig.expert_rows`)."""
        return mesh_rows(self.tp, self.ep, self.etp)

    @property
    def divides_experts(self) -> bool:
        """Whether whole meshes of experts fill the ranks of a stage, and match whole tensor-parallel groups."""
        return matches_tp(self.tp, self.ep, self.etp) and self.slots % self.expert_rows == 0

    @property
    def one_mesh(self) -> Shape:
        """The shape with the fewest replicas that hold each expert."""
        return changed(self, dp=self.expert_rows // math.gcd(self.expert_rows, self.cp), zero_shard_size=None)

    def tp_on(self, cluster: str) -> int:
        """Tensor-parallel degree of the stages on a cluster."""
        if not self.cluster_tp:  # nearly always
            return self.tp
        return next((tp for name, tp in self.cluster_tp if name == cluster), self.tp)

    def on(self, cluster: str) -> Shape:
        """The shape of the stages on a cluster, by themselves."""
        return _on(self, self.tp_on(cluster)) if self.cluster_tp else self

    @property
    def least_tp(self) -> int:
        """The least tensor-parallel degree of any cluster."""
        return min([self.tp, *(tp for _, tp in self.cluster_tp)])

    @property
    def extremes(self) -> tuple[Shape, ...]:
        """The shape with no and with all layers recomputed, where stages choose their number; else the shape itself."""
        return _extremes(self) if self.recompute == BLOCK else (self,)

    def microbatches(self, workload: Workload) -> int:
        """Number of microbatches of every replica; where dp does not divide the batch, of those that have one more."""
        return -(-workload.global_batch_size // (self.dp * self.microbatch_size))

    def least_microbatches(self, workload: Workload) -> int:
        """Number of microbatches that every replica has at least."""
        return workload.global_batch_size // (self.dp * self.microbatch_size)

    def divides(self, workload: Workload) -> bool:
        """Whether all replicas have the same number of microbatches."""
        return workload.global_batch_size % (self.dp * self.microbatch_size) == 0

    def microbatches_of_replicas(self, workload: Workload) -> tuple[int, ...]:
        """Number of microbatches of each replica; those with one more come first."""
        each, more = divmod(workload.global_batch_size // self.microbatch_size, self.dp)
        return (each + 1,) * more + (each,) * (self.dp - more)

    def is_defined(self, microbatches: int, pp: int) -> bool:
        """Whether the schedule is defined for pp pipeline ranks and this number of microbatches."""
        return schedules.is_defined(self.schedule, pp, microbatches, self.vpp)

    def longest(self, microbatches: int, most: int) -> int:
        """The largest pp up to `most` that the schedule is defined for; at least 1."""
        return next((pp for pp in range(most, 0, -1) if self.is_defined(microbatches, pp)), 1)

    def config(self, workload: Workload, pp: int) -> ParallelConfig:
        """The configuration with pp pipeline stages, for costs: every replica has the most microbatches of any replica.

        All stages have `tp`; `on` a cluster they have that of the cluster. With `BLOCK` no layer is recomputed."""
        return _config(self, workload, pp)


@functools.lru_cache(maxsize=4096)
def _on(shape: Shape, tp: int) -> Shape:
    return changed(shape, tp=tp, cluster_tp=())


@functools.lru_cache(maxsize=4096)
def _extremes(shape: Shape) -> tuple[Shape, ...]:
    return changed(shape, recompute="none"), changed(shape, recompute="full")


@functools.lru_cache(maxsize=64)  # one entry may be large: a number for each replica
def _alike(microbatches: int, dp: int) -> tuple[int, ...]:
    return (microbatches,) * dp


FACTS = tuple(one.name for one in fields(Shape) if one.init and one.name != "cluster_tp")
"""Fields that a shape and its configuration share."""


@functools.lru_cache(maxsize=4096)
def _config(shape: Shape, workload: Workload, pp: int) -> ParallelConfig:
    facts = {name: getattr(shape, name) for name in FACTS}
    if shape.recompute == BLOCK:
        facts["recompute"] = "none"
    if shape.ep == 1:
        facts["dispatcher"] = DISPATCHERS[0]
    beside = shape.ep > 1 and shape.dispatcher != "allgather" and workload.model.shared_ffn_hidden > 0
    facts["overlap_shared_experts"] = shape.overlap_shared_experts and beside
    facts["overlap_expert_communication"] = shape.overlap_expert_communication and shape.ep > 1
    facts["tied_shards"] = shape.tied_shards and pp > 1 and shape.zero_stage >= 1
    return ParallelConfig(
        pp=pp,
        num_microbatches=_alike(shape.microbatches(workload), shape.dp),
        sequence_parallel=shape.tp > 1,
        gradient_precision=USUAL_GRADIENTS.get(workload.precision, "fp32"),
        **workload.routing.of_config(shape.ep),
        **facts,
    )


@functools.lru_cache(maxsize=4096)
def split_backward(shape: Shape) -> Shape:
    """The shape under a schedule that splits the backward and overlaps messages: its costs are at most those of any
    schedule."""
    return changed(shape, schedule=_splitting(), vpp=1)


@functools.lru_cache(maxsize=1)
def _splitting() -> str:
    """The first schedule that splits the backward and overlaps messages, without virtual stages."""
    known = {name: schedules.get(name) for name in schedules.names()}
    return next(n for n, one in known.items() if one.SPLITS_BACKWARD and one.OVERLAPS_SENDS and not one.CHUNKED)
