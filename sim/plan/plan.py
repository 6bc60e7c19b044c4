"""Who does what: parallel degrees, stages, the device of every rank, the groups, and what was promised.

A plan is the input of the simulator, of the exporters and of the torch backend; the planner is only one author of plans.
Ranks are numbered as Megatron-LM's default order tp-cp-ep-dp-pp (RankGenerator in megatron/core/parallel_state.py): tp varies
fastest, pp slowest. For dense layers the order is tp-cp-dp-pp; the cp x dp ranks of a stage that hold the same dense weights
are numbered through as one index, cp fastest. For experts ep takes its ranks from that same index, ep fastest, so that ep
divides cp x dp, and cp x dp / ep ranks hold the same experts.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from sim import collectives, markup
from sim.errors import PlanError
from sim.hardware.cluster import Device, Fleet, common_transport
from sim.hardware.stack import Stack, applied
from sim.hardware.topology import Topology
from sim.plan import schedules
from sim.units import time_text
from sim.workload.model import Workload

RECOMPUTE = ("none", "selective", "full")
ATTENTION = ("flash", "unfused")
GRADIENT_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}
USUAL_GRADIENTS = {"fp16": "fp16"}
"""Precision -> gradient precision that Megatron-LM uses unless told otherwise: fp16 keeps fp16, all others sum in fp32."""
ZERO_STAGES = (0, 1, 2, 3)
GROUP_KINDS = ("tp", "pp", "dp", "cp", "ep")


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
    """What the plan promises: the simulated step. `peak_memory_bytes` by pipeline place; money and energy
    (`sim.results.cost_energy`) are None where a price, or watts, are not known."""

    step_s: float
    samples_per_s: float
    tokens_per_s: float
    tflops_per_device: float
    mfu: float
    peak_memory_bytes: tuple[float, ...]
    bubble_fraction: float
    exposed_communication_s: float
    upper_bound_fraction: float
    usd_per_token: float | None = None
    joules_per_token: float | None = None


OBJECTIVES = {"step-time": "step_s", "cost": "usd_per_token", "energy": "joules_per_token"}
"""What a plan may be chosen for -> the number of its prediction that is to be small."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A dimension of the searched space: its values, or in words where they follow a rule."""

    name: str
    values: tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Certificate:
    """How far the promise can be from the best of the searched space.

    `objective_s` is the plan's step and `lower_bound_s` what no plan's is below; `gap` is 1 - lower_bound_s / objective_s.
    Where the plan is a pipeline of whole stages these are about such pipelines, and `mixed_lower_bound_s` is what no plan with
    stages across clusters is below; where it has such stages itself, they are about both.
    Where the objective is another, `gap` is 1 - lower_bound_per_token / the plan's own (USD or joules).
    `space` is what was searched, by axis; `outside` what was not though a plan could have it.
    """

    status: str
    objective_s: float
    lower_bound_s: float
    gap: float
    solver: str
    seconds: float
    objective: str = "step-time"
    lower_bound_per_token: float | None = None
    mixed_lower_bound_s: float | None = None
    space: tuple[Axis, ...] = ()
    outside: tuple[str, ...] = ()


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

    def __repr__(self) -> str:
        config = self.config
        degrees = ", ".join(
            f"{key} {getattr(config, key)}" for key in ("tp", "pp", "dp", "cp", "ep", "vpp") if self._tells(key)
        )
        step = f", a step of {time_text(self.prediction.step_s)}" if self.prediction else ""
        name, model = self.topology.name, self.workload.model.name
        return f"{name}: {model}, {degrees}, mb {config.microbatch_size}, {config.schedule}{step}"

    def _repr_html_(self) -> str:
        width = self.config.tp * self.config.dp_cp
        ranks = [range(place * width, (place + 1) * width) for place in range(self.config.pp)]
        return markup.table(
            repr(self),
            [
                {
                    "place": place,
                    "clusters": " + ".join(dict.fromkeys(self.placement[rank].cluster for rank in own)),
                    "ranks": f"{own[0]}-{own[-1]}",
                    "layers": sum(self.stages[stage].layers for stage in self.stages_of(place)),
                }
                for place, own in enumerate(ranks)
            ],
        )

    def _tells(self, degree: str) -> bool:
        return degree in ("tp", "pp", "dp") or getattr(self.config, degree) > 1

    def saying(self, **said: Prediction | Certificate | MadeBy) -> Plan:
        """The plan with another prediction, certificate or maker: nothing that would have to be checked again."""
        found = copy.copy(self)
        for name, what in said.items():
            object.__setattr__(found, name, what)
        return found

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
    for key in ("heads", "ffn_hidden", "vocab", "shared_ffn_hidden"):
        if getattr(workload.model, key) % config.tp:
            raise PlanError(f"config.tp: {config.tp} does not divide {key} {getattr(workload.model, key)}")
    for replica in set(config.num_microbatches):
        schedules.actions(config.schedule, 0, config.pp, replica, config.vpp)
    _check_sequence_and_experts(config, workload)


def _check_sequence_and_experts(config: ParallelConfig, workload: Workload) -> None:
    """Each cp rank takes two chunks of the sequence, one early and one late, so that causal attention is balanced."""
    if config.cp > 1 and workload.seq_len % (2 * config.cp):
        raise PlanError(f"config.cp: seq_len {workload.seq_len} is not a multiple of 2 x cp {config.cp}")
    if config.ep == 1:
        return
    if workload.model.experts % config.ep or not workload.model.experts:
        raise PlanError(f"config.ep: {config.ep} does not divide experts {workload.model.experts} of {workload.model.name}")
    for first in range(0, config.dp_cp, config.ep):
        if len({config.microbatches_of(first + index) for index in range(config.ep)}) > 1:
            raise PlanError("config.ep: ranks that exchange tokens must have equally many microbatches")


def _check_placement(plan: Plan) -> None:
    if len(plan.placement) != plan.config.world_size:
        raise PlanError(f"placement: {len(plan.placement)} devices for {plan.config.world_size} ranks")
    for name in dict.fromkeys(device.cluster for device in plan.placement):
        plan.fleet.cluster(name).node.device.peak_of(plan.workload.precision)
    seen: dict[Device, int] = {}
    for rank, device in enumerate(plan.placement):
        plan.fleet.check(device)
        if seen.setdefault(device, rank) != rank:
            raise PlanError(f"placement[{rank}]: {device} is already rank {seen[device]}'s")


def _check_groups(plan: Plan) -> None:
    expected = {(kind, ranks) for kind, ranks in group_ranks(plan.config)}
    listed = {(group.kind, tuple(sorted(group.ranks))) for group in plan.groups}
    for kind, ranks in sorted(expected - listed):
        raise PlanError(f"groups: the {kind} group of ranks {list(ranks)} is missing")
    for kind, ranks in sorted(listed - expected):
        raise PlanError(f"groups: {kind} group of ranks {list(ranks)} does not follow from the degrees")
    for index, group in enumerate(plan.groups):
        collectives.get(group.collective)
        at = {plan.placement[rank].cluster: rank for rank in reversed(group.ranks)}
        common_transport(plan.fleet, tuple(plan.placement[rank] for rank in group.ranks))
        for name, rank in at.items() if group.transport == "rdma" else ():
            if plan.fleet.cluster(name).node.nic(group.nic) is None:
                raise PlanError(f"groups[{index}].nic: {group.nic} is not a NIC of {plan.placement[rank]} (rank {rank})")


def group_ranks(config: ParallelConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """(kind, ranks) of every group of two or more ranks that the degrees call for."""
    tp, width = config.tp, config.tp * config.dp_cp
    for place in range(0, config.world_size, width):
        for first in range(place, place + width, tp) if tp > 1 else ():
            yield "tp", tuple(range(first, first + tp))
        for kind, indices in _data_groups(config):
            for first in range(place, place + tp):
                yield kind, tuple(range(first + tp * indices.start, first + tp * indices.stop, tp * indices.step))
    for first in range(width) if config.pp > 1 else ():
        yield "pp", tuple(range(first, config.world_size, width))


def _data_groups(config: ParallelConfig) -> Iterator[tuple[str, range]]:
    """(kind, dp_cp indices) of the cp, ep and dp groups of one pipeline place and one tensor-parallel rank."""
    if config.cp > 1:
        for first in range(0, config.dp_cp, config.cp):
            yield "cp", range(first, first + config.cp)
    if config.ep > 1:
        for first in range(0, config.dp_cp, config.ep):
            yield "ep", range(first, first + config.ep)
    if config.dp > 1:
        for first in range(config.cp):
            yield "dp", range(first, config.dp_cp, config.cp)


def groups_of(fleet: Fleet, config: ParallelConfig, placement: tuple[Device, ...]) -> tuple[Group, ...]:
    """Every group with the fastest NIC that all its members share (`sim.hardware.cluster.common_transport`)."""

    ranks = ((kind, ranks, "all_to_all" if kind == "ep" else "ring") for kind, ranks in group_ranks(config))
    return tuple(_with_transport(fleet, placement, ranks))


def _with_transport(
    fleet: Fleet, placement: tuple[Device, ...], groups: Iterable[tuple[str, tuple[int, ...], str]]
) -> Iterator[Group]:
    for kind, ranks, collective in groups:
        yield Group(kind, ranks, *common_transport(fleet, tuple(placement[rank] for rank in ranks)), collective)


def embedding_groups(groups: Iterable[Group]) -> tuple[Group, ...]:
    """First and last rank of every pipeline, who share a tied embedding: its gradient goes round as a ring of two."""
    pipelines = (group for group in groups if group.kind == "pp")
    return tuple(Group("embedding", (min(g.ranks), max(g.ranks)), g.nic, g.transport, "ring") for g in pipelines)


def gradient_groups(plan: Plan) -> tuple[Group, ...]:
    """Groups over which gradients are reduced: of kind dp for dense weights, of kind edp for experts under ep.

    Without cp the former are the plan's dp groups. With it each spans cp of them, and experts are shared by yet another group
    (Megatron-LM's dp-cp and expert-data-parallel groups); those get the fastest NIC that all their members share, and the
    collective of the dp groups of their place.
    """
    config = plan.config
    listed = tuple(group for group in plan.groups if group.kind == "dp")
    chosen = {config.place(group.ranks[0])[2]: group.collective for group in listed}
    sets: list[tuple[str, range]] = []
    if config.cp > 1:
        sets.append(("dp", range(config.dp_cp)))
    if config.ep > 1 and config.edp > 1:
        sets += [("edp", range(first, config.dp_cp, config.ep)) for first in range(config.ep)]
    derived = (
        (kind, tuple(config.rank(tp, index, pp) for index in indices), chosen.get(pp, "ring"))
        for pp in range(config.pp)
        for kind, indices in sets
        for tp in range(config.tp)
    )
    return (listed if config.cp == 1 else ()) + tuple(_with_transport(plan.fleet, plan.placement, derived))


def under(stack: Stack, plan: Plan) -> Plan:
    """The plan, read with the default stack, on the same devices under another one."""
    return replace(plan, topology=replace(plan.topology, fleet=applied(stack, plan.fleet)))
