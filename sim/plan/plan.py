"""The plan of a training run: parallel degrees, stages, the device of every rank, communication groups, prediction and
certificate.

A plan is the input of the simulator, the exporters and the torch backend; the planner is only one author of plans. A plan
checks itself when it is made.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, replace

from sim import collectives, markup
from sim.errors import NotModelled, PlanError
from sim.hardware.cluster import Device, Fleet
from sim.hardware.device_spec import DeviceSpec
from sim.hardware.topology import Topology
from sim.hardware.transport import common_transport, reduces_in_network
from sim.plan import schedules
from sim.plan.certificate import Certificate
from sim.plan.groups import Group, group_ranks
from sim.plan.offloading import check_single_peer
from sim.plan.parallel_config import ParallelConfig
from sim.plan.prediction import Prediction
from sim.plan.unlike_degrees import check_tied_ends
from sim.plan.unlike_experts import check_experts_of
from sim.units import time_text
from sim.workload.workload import Workload


@dataclass(frozen=True, slots=True)
class Stage:
    """A range of layers: `first` up to, but not including, `past_last`. `head`: it has the head, although it is not the last
    stage."""

    first: int
    past_last: int
    head: bool = False

    @property
    def layers(self) -> int:
        """Number of layers."""
        return self.past_last - self.first


@dataclass(frozen=True, slots=True)
class MadeBy:
    """The strategy that made the plan and its version."""

    strategy: str
    version: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything a run needs. `stages` are in pipeline order, virtual ones included; `placement[rank]` is a device.

    Raises PlanError if stages, placement or groups do not fit the configuration, the workload or the fleet, NotDefined if the
    schedule does not exist for the numbers, NoRoute if nothing joins a group."""

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
        check_single_peer(self.config, self.config.offload)
        for check in (_check_stages, _check_placement, _check_groups):
            check(self)

    def __repr__(self) -> str:
        config = self.config
        shown = {"tp": config.tp_text, "pp": config.pp, "dp": config.dp_text} | config.further_degrees
        shown |= {"vpp": config.vpp} if config.vpp > 1 else {}
        degrees = ", ".join(f"{key} {degree}" for key, degree in shown.items())
        step = f", a step of {time_text(self.prediction.step_s)}" if self.prediction else ""
        name, model = self.topology.name, self.workload.model.name
        return f"{name}: {model}, {degrees}, mb {config.microbatch_text}, {config.schedule}{step}"

    def _repr_html_(self) -> str:
        ranks = [range(*map(self.config.first_rank, (pp_rank, pp_rank + 1))) for pp_rank in range(self.config.pp)]
        return markup.table(
            repr(self),
            [
                {
                    "pipeline rank": pp_rank,
                    "clusters": " + ".join(dict.fromkeys(self.placement[rank].cluster for rank in own)),
                    "ranks": f"{own[0]}-{own[-1]}",
                    "layers": self.layers[pp_rank],
                }
                for pp_rank, own in enumerate(ranks)
            ],
        )

    def recomputing(self, config: ParallelConfig) -> Plan:
        """The plan under a configuration that differs in recomputation alone, without repeating the checks of its placement and
        groups, which take long."""
        found = self.annotated(config=config)
        _check_stages(found)
        return found

    def annotated(self, **fields: ParallelConfig | Prediction | Certificate | MadeBy | tuple[Group, ...]) -> Plan:
        """The plan with another prediction, certificate or made_by, on which its checks do not depend, or with other
        collectives that are known to be valid, without repeating its checks, which take long."""
        found = copy.copy(self)
        for name, what in fields.items():
            object.__setattr__(found, name, what)
        return found

    @property
    def fleet(self) -> Fleet:
        """The machines of the topology."""
        return self.topology.fleet

    @property
    def nodes(self) -> int:
        """Number of nodes with a rank."""
        return len({(device.cluster, device.node) for device in self.placement})

    @property
    def specs(self) -> tuple[DeviceSpec, ...]:
        """Device types of the ranks, in the order of the ranks."""
        return tuple(dict.fromkeys(self.fleet.spec(device) for device in self.placement))

    def stages_of(self, pp_rank: int) -> tuple[int, ...]:
        """Indices of the stages that a pipeline rank holds."""
        return schedules.stages_of(self.config.schedule, pp_rank, self.config.pp, self.config.num_stages)

    @property
    def layers(self) -> tuple[int, ...]:
        """Layers of each pipeline rank, in all its stages."""
        ranks = range(self.config.pp)
        return tuple(sum(self.stages[stage].layers for stage in self.stages_of(pp_rank)) for pp_rank in ranks)

    @property
    def head_stage(self) -> int:
        """Index of the stage with the head (final norm, logits and loss): the last one, unless another says that it has it."""
        return next((index for index, stage in enumerate(self.stages) if stage.head), self.config.num_stages - 1)

    def passes_on(self, stage: int) -> bool:
        """Whether a stage has neither layers nor embedding nor head, and passes the messages for the head on."""
        return not self.stages[stage].layers and 0 < stage < self.head_stage

    def ends(self, stages: Iterable[int]) -> tuple[bool, bool]:
        """Whether the embedding, and whether the head, is on one of these stages."""
        held = tuple(stages)
        return 0 in held, self.head_stage in held

    def config_of(self, stages: Iterable[int]) -> ParallelConfig:
        """The configuration of these stages of one pipeline rank together: its degrees, and the number of their layers that are
        recomputed."""
        held = tuple(stages)
        config = self.config.of_pp_rank(self.config.rank_of(held[0]))
        if not (counts := config.recompute_layers):
            return config
        pairs = ((counts[index if len(counts) > 1 else 0], self.stages[index].layers) for index in held)
        return replace(config, recompute_layers=(sum(min(pair) for pair in pairs),))

    def workload_of(self, stages: Iterable[int]) -> Workload:
        """The workload of these stages of one pipeline rank together: with the kinds of their layers, where layers differ."""
        if self.workload.model.is_uniform:
            return self.workload
        held = tuple(stages)
        parts = [self.workload.of_layers(self.stages[i].first, self.stages[i].past_last, i == self.head_stage) for i in held]
        return replace(self.workload, held=tuple(kind for part in parts for kind in part.held))

    def hosts(self, ranks: tuple[int, ...]) -> collectives.Hosts:
        """The ranks grouped by host, in the order given."""
        by_host: dict[tuple[str, int], list[int]] = {}
        for rank in ranks:
            device = self.placement[rank]
            by_host.setdefault((device.cluster, device.node), []).append(rank)
        return tuple(tuple(host) for host in by_host.values())


def _check_stages(plan: Plan) -> None:
    config, workload = plan.config, plan.workload
    if len(plan.stages) != config.num_stages:
        raise PlanError(f"stages: {len(plan.stages)} given, pp {config.pp} x vpp {config.vpp} needs {config.num_stages}")
    expected = 0
    for index, stage in enumerate(plan.stages):
        if stage.first != expected or stage.past_last < stage.first:
            raise PlanError(f"stages[{index}].layers: [{stage.first}, {stage.past_last}] must start at {expected}")
        expected = stage.past_last
    if expected != workload.model.layers:
        raise PlanError(f"stages: they have {expected} layers, but model {workload.model.name} has {workload.model.layers}")
    _check_head(plan)
    samples = sum(config.num_microbatches) * config.microbatch_size
    if samples != workload.global_batch_size:
        raise PlanError(
            f"config: {sum(config.num_microbatches)} microbatches of {config.microbatch_size} are {samples} samples, but "
            f"global_batch_size is {workload.global_batch_size}"
        )
    for key in ("heads", "vocab", "shared_ffn_hidden", "dense_ffn_hidden", *(("ffn_hidden",) if config.etp is None else ())):
        if getattr(workload.model, key) % config.tp:
            raise PlanError(f"config.tp: {config.tp} does not divide {key} {getattr(workload.model, key)}")
    if workload.model.tied_embeddings:
        check_tied_ends(config, head := config.rank_of(plan.head_stage), (config.zero_of(0) >= 1, config.zero_of(head) >= 1))
    for replica in set(config.num_microbatches):
        schedules.actions(config.schedule, 0, config.pp, replica, config.vpp)
    _check_sequence_and_experts(config, workload)


def _check_head(plan: Plan) -> None:
    """Check stages that pass messages on, and the place of the head, where it is not on the last stage."""
    config, layers, head = plan.config, plan.workload.model.layers, plan.head_stage
    option = f"vpp {config.vpp}" if config.vpp > 1 else f"zero_stage {config.zero_stage}" if config.shards_parameters else ""
    if option and (passing := next(filter(plan.passes_on, range(head)), 0)):
        raise NotModelled(f"stages[{passing}].layers: a stage that only passes messages on is not modelled with {option}")
    for index, stage in enumerate(plan.stages[head + 1 :], head + 1):
        if stage.head:
            raise PlanError(f"stages[{index}].head: stages[{head}] has the head, and one stage has it")
    if head == config.num_stages - 1:
        return
    if (end := plan.stages[head].past_last) < layers:
        raise PlanError(f"stages[{head}].head: the head follows all {layers} layers; this stage ends with layer {end}")
    if head == 0:
        raise PlanError("stages[0].head: the first stage has the embedding; a later stage has the head")
    if option:
        raise NotModelled(f"stages[{head}].head: a head that is not on the last stage is not modelled with {option}")


def _check_sequence_and_experts(config: ParallelConfig, workload: Workload) -> None:
    """Check seq_len against cp, and experts and microbatches against ep.

    Each cp rank takes two chunks of the sequence, one early and one late, to balance causal attention: 2 x cp divides
    seq_len."""
    if config.recompute_layers and not workload.model.is_uniform:
        raise NotModelled("config.recompute_layers: some layers of a stage, where the layers of the model differ; full or none")
    if (cp := max((config.cp, *config.stage_cp))) > 1 and workload.seq_len % (2 * cp):
        key = "stage_cp" if config.stage_cp else "cp"
        raise PlanError(f"config.{key}: seq_len {workload.seq_len} is not a multiple of 2 x cp {cp}")
    for key, module in config.named_modules:
        if module in ("moe", "moe_act") and not workload.model.experts:
            raise PlanError(f"config.{key}: {module} needs experts, which {workload.model.name} has not")
        if module == "mla_up_proj" and workload.model.attention != "mla":
            raise PlanError(f"config.{key}: mla_up_proj needs attention mla, which {workload.model.name} has not")
        if module == "mlp" and workload.model.experts and not workload.model.dense_ffn_hidden:
            raise PlanError(f"config.{key}: mlp is for layers without experts; {workload.model.name} has experts: moe")
    config.check_routing(workload.model)
    if config.overlap_shared_experts and not workload.model.shared_ffn_hidden:
        raise PlanError(f"config.overlap_shared_experts: model {workload.model.name} has no shared experts; leave it out")
    if not config.splits_experts:
        return
    prefix = "config.stage_" if config.stage_ep or config.stage_etp else "config."
    for pp_rank in range(config.pp if prefix != "config." or config.has_stage_degrees else 1):
        microbatches = [config.microbatches_of(index, pp_rank) for index in range(config.dp_cp_of(pp_rank))]
        check_experts_of(config.of_pp_rank(pp_rank), workload.model, microbatches, prefix)


def _check_placement(plan: Plan) -> None:
    if len(plan.placement) != plan.config.world_size:
        raise PlanError(f"placement: {len(plan.placement)} devices for {plan.config.world_size} ranks; one for each is needed")
    for name in dict.fromkeys(device.cluster for device in plan.placement):
        plan.fleet.cluster(name).node.device.peak_of(plan.workload.precision)
    fleet, seen = plan.fleet, dict[Device, int]()
    for rank, device in enumerate(plan.placement):
        fleet.check(device)
        if seen.setdefault(device, rank) != rank:
            raise PlanError(f"placement[{rank}]: {device} is already the device of rank {seen[device]}")


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
        devices = tuple(plan.placement[rank] for rank in group.ranks)
        common_transport(plan.fleet, devices)
        able = group.nic == "intra_node" or (group.kind == "dp" and reduces_in_network(plan.fleet, devices, group.nic))
        if collectives.get(group.collective).IN_NETWORK and not able:
            raise PlanError(
                f"groups[{index}].collective: {group.collective} needs a dp group on one cluster whose {group.nic} NICs have "
                f"sharp: true; ring or tree"
            )
        for name, rank in at.items() if group.transport == "rdma" else ():
            if plan.fleet.cluster(name).node.nic(group.nic) is None:
                raise PlanError(f"groups[{index}].nic: {group.nic} is not a NIC of {plan.placement[rank]} (rank {rank})")
