"""Who does what: parallel degrees, stages, the device of every rank, the groups, and what was promised.

A plan is the input of the simulator, of the exporters and of the torch backend; the planner is only one author of plans.
Ranks are numbered as Megatron-LM's default order tp-cp-ep-dp-pp: tp varies fastest, pp slowest.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from sim import collectives, schedules
from sim.cluster import Device, Fleet, common_transport
from sim.errors import PlanError
from sim.model import Workload
from sim.topology import Topology

RECOMPUTE = ("none", "selective", "full")
ATTENTION = ("flash", "unfused")
GRADIENT_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}
USUAL_GRADIENTS = {"fp16": "fp16"}
"""Precision -> gradient precision that Megatron-LM uses unless told otherwise: fp16 keeps fp16, all others sum in fp32."""
GROUP_KINDS = ("tp", "pp", "dp", "cp", "ep")


@dataclass(frozen=True, slots=True)
class ParallelConfig:
    """How the work is divided. `num_microbatches` holds one number for each data-parallel replica."""

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
    recompute: str = "none"
    sequence_parallel: bool = False
    overlap_grad_reduce: bool = True
    overlap_param_gather: bool = True
    attention: str = "flash"
    gradient_precision: str = "fp32"
    scatter_gather: bool = False

    def __post_init__(self) -> None:
        for key in ("tp", "pp", "dp", "cp", "ep", "vpp", "microbatch_size"):
            if getattr(self, key) < 1:
                raise PlanError(f"{key} must be at least 1, not {getattr(self, key)}")
        for key in ("cp", "ep"):
            if getattr(self, key) > 1:
                raise PlanError(f"{key} {getattr(self, key)} is not modelled; {key} must be 1")
        if self.zero_stage not in (0, 1):
            raise PlanError(f"zero_stage {self.zero_stage} is not modelled; 0 and 1 are")
        known = {"recompute": RECOMPUTE, "attention": ATTENTION, "gradient_precision": tuple(GRADIENT_BYTES)}
        for key, values in known.items():
            if getattr(self, key) not in values:
                raise PlanError(f"{key} {getattr(self, key)!r} is unknown; known: {', '.join(values)}")
        if self.scatter_gather and self.sequence_parallel:
            raise PlanError("scatter_gather has nothing to cut with sequence_parallel: messages are slices already")
        if len(self.num_microbatches) != self.dp:
            raise PlanError(f"num_microbatches has {len(self.num_microbatches)} numbers for dp {self.dp}; one per replica")
        if min(self.num_microbatches) < 1:
            raise PlanError("every replica needs at least one microbatch")
        if self.vpp > 1 and not schedules.get(self.schedule).CHUNKED:
            raise PlanError(f"schedule {self.schedule} holds one stage a rank; vpp {self.vpp} needs interleaved")
        schedules.get(self.schedule)

    @property
    def world_size(self) -> int:
        """Ranks in all."""
        return self.tp * self.pp * self.dp

    @property
    def num_stages(self) -> int:
        """Stages in all, virtual ones included."""
        return self.pp * self.vpp

    def place(self, rank: int) -> tuple[int, int, int]:
        """(tp, dp, pp) index of a rank."""
        return rank % self.tp, rank // self.tp % self.dp, rank // (self.tp * self.dp)

    def rank(self, tp: int, dp: int, pp: int) -> int:
        """Rank of a (tp, dp, pp) index."""
        return tp + self.tp * (dp + self.dp * pp)


@dataclass(frozen=True, slots=True)
class Stage:
    """A range of layers: from `first` up to, not including, `past_last`."""

    first: int
    past_last: int

    @property
    def layers(self) -> int:
        """How many layers."""
        return self.past_last - self.first


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks that communicate, in ring order. `nic` is a NIC type or intra_node; `transport` intra_node, rdma or tcp."""

    kind: str
    ranks: tuple[int, ...]
    nic: str
    transport: str
    collective: str


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the plan promises: the simulated step. `peak_memory_bytes` by pipeline place."""

    step_s: float
    samples_per_s: float
    tokens_per_s: float
    tflops_per_device: float
    mfu: float
    peak_memory_bytes: tuple[float, ...]
    bubble_fraction: float
    exposed_communication_s: float
    upper_bound_fraction: float


@dataclass(frozen=True, slots=True)
class Certificate:
    """How far the promise can be from the best of the searched space. `gap` is 1 - lower_bound_s / objective_s."""

    status: str
    objective_s: float
    lower_bound_s: float
    gap: float
    solver: str
    seconds: float


@dataclass(frozen=True, slots=True)
class MadeBy:
    """Who made the plan."""

    strategy: str
    version: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything a run needs. `stages` in pipeline order, virtual ones included; `placement[rank]` is its device."""

    topology: Topology
    workload: Workload
    config: ParallelConfig
    stages: tuple[Stage, ...]
    placement: tuple[Device, ...]
    groups: tuple[Group, ...]
    made_by: MadeBy
    prediction: Prediction | None = None
    certificate: Certificate | None = None

    def __post_init__(self) -> None:
        _check_stages(self)
        _check_placement(self)
        _check_groups(self)

    @property
    def fleet(self) -> Fleet:
        """The machines."""
        return self.topology.fleet

    def stages_of(self, pp_rank: int) -> tuple[int, ...]:
        """Indices of the stages of a pipeline place."""
        return tuple(range(pp_rank, self.config.num_stages, self.config.pp))

    def hosts(self, ranks: tuple[int, ...]) -> collectives.Hosts:
        """Ranks host by host, in the order given."""
        by_host: dict[tuple[str, int], list[int]] = {}
        for rank in ranks:
            device = self.placement[rank]
            by_host.setdefault((device.cluster, device.node), []).append(rank)
        return tuple(tuple(host) for host in by_host.values())


def _check_stages(plan: Plan) -> None:
    config, workload = plan.config, plan.workload
    if len(plan.stages) != config.num_stages:
        raise PlanError(f"stages: {len(plan.stages)} given, pp {config.pp} x vpp {config.vpp} needs {config.num_stages}")
    place = 0
    for index, stage in enumerate(plan.stages):
        if stage.first != place or stage.past_last <= stage.first:
            raise PlanError(f"stages[{index}].layers: [{stage.first}, {stage.past_last}] should start at {place} and grow")
        place = stage.past_last
    if place != workload.model.layers:
        raise PlanError(f"stages: cover {place} layers; model {workload.model.name} has {workload.model.layers}")
    samples = sum(config.num_microbatches) * config.microbatch_size
    if samples != workload.global_batch_size:
        raise PlanError(
            f"config: {sum(config.num_microbatches)} microbatches of {config.microbatch_size} are {samples} samples; "
            f"global_batch_size is {workload.global_batch_size}"
        )
    for key in ("heads", "ffn_hidden", "vocab"):
        if getattr(workload.model, key) % config.tp:
            raise PlanError(f"config.tp: {config.tp} does not divide {key} {getattr(workload.model, key)}")
    for replica in set(config.num_microbatches):
        schedules.actions(config.schedule, 0, config.pp, replica, config.vpp)


def _check_placement(plan: Plan) -> None:
    if len(plan.placement) != plan.config.world_size:
        raise PlanError(f"placement: {len(plan.placement)} devices for {plan.config.world_size} ranks")
    seen: dict[Device, int] = {}
    for rank, device in enumerate(plan.placement):
        plan.fleet.check(device)
        plan.fleet.spec(device).peak_of(plan.workload.precision)
        if device in seen:
            raise PlanError(f"placement[{rank}]: {device} is already rank {seen[device]}'s")
        seen[device] = rank


def _check_groups(plan: Plan) -> None:
    expected = {(kind, ranks) for kind, ranks in group_ranks(plan.config)}
    listed = {(group.kind, tuple(sorted(group.ranks))) for group in plan.groups}
    for kind, ranks in sorted(expected - listed):
        raise PlanError(f"groups: the {kind} group of ranks {list(ranks)} is missing")
    for kind, ranks in sorted(listed - expected):
        raise PlanError(f"groups: {kind} group of ranks {list(ranks)} does not follow from the degrees")
    for index, group in enumerate(plan.groups):
        collectives.get(group.collective)
        best = common_transport(plan.fleet, tuple(plan.placement[rank] for rank in group.ranks))
        if group.transport == "rdma" and group.nic != best[0]:
            _check_rdma(plan, index, group)


def _check_rdma(plan: Plan, index: int, group: Group) -> None:
    for rank in group.ranks:
        device = plan.placement[rank]
        if plan.fleet.cluster(device.cluster).node.nic(group.nic) is None:
            raise PlanError(f"groups[{index}].nic: {group.nic} is not a NIC of {device} (rank {rank})")


def group_ranks(config: ParallelConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """(kind, ranks) of every group of two or more ranks that the degrees call for."""
    for pp in range(config.pp):
        for dp in range(config.dp):
            if config.tp > 1:
                yield "tp", tuple(config.rank(tp, dp, pp) for tp in range(config.tp))
        for tp in range(config.tp):
            if config.dp > 1:
                yield "dp", tuple(config.rank(tp, dp, pp) for dp in range(config.dp))
    for dp in range(config.dp):
        for tp in range(config.tp):
            if config.pp > 1:
                yield "pp", tuple(config.rank(tp, dp, pp) for pp in range(config.pp))


def groups_of(fleet: Fleet, config: ParallelConfig, placement: tuple[Device, ...]) -> tuple[Group, ...]:
    """Every group with the fastest NIC that all its members share (`sim.cluster.common_transport`)."""

    @functools.cache
    def transport(nodes: tuple[Device, ...]) -> tuple[str, str]:
        return common_transport(fleet, nodes)

    groups = []
    for kind, ranks in group_ranks(config):
        nodes = tuple(dict.fromkeys(replace(placement[rank], index=0) for rank in ranks))
        nic, way = transport(nodes)
        groups.append(Group(kind, ranks, nic, way, "ring"))
    return tuple(groups)
