"""Closed forms: seconds of a stage, of a message and of a collective on an idle network, and the step they add up to.

The engine plays the same kernels, payloads and routes; here they are added up without a clock. What a stage costs is all
the planner needs, so this is the only cost model there is.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import numpy as np

from sim.hardware.cluster import Device, Fleet
from sim.hardware.device_spec import DeviceSpec
from sim.kernels import compute, memory, payloads
from sim.network.alpha_beta import AlphaBeta, alpha_beta_cost
from sim.network.collective_costs import CollectiveCosts
from sim.network.p2p_load import P2PLoad
from sim.network.paths import Capacities
from sim.network.protocols import protocols
from sim.network.replica_rows import ReplicaRows
from sim.network.rings import Sites
from sim.network.routes import member, message_route
from sim.plan import schedules
from sim.plan.derived_groups import embedding_groups, gradient_groups
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from sim.units import Bytes, Seconds
from sim.workload.workload import Workload


@dataclass(frozen=True, slots=True)
class StageCost:
    """Seconds of one stage on the ranks that hold it.

    forward and backward are of one microbatch, tensor-parallel collectives included; the sends are what a rank waits for its
    messages to leave (0 where the schedule overlaps them: then lane is what the messages ahead of one microbatch take of their
    way); weight is what of the backward the schedule splits off as W (0
    where it does not); `received` what of the forward is the gather of its message; reduce and gather are whole, in `parts`
    buckets; `traffic` is what one microbatch puts on the data-parallel network (ZeRO 2 and 3), which takes turns with no other
    microbatch's.
    """

    forward: Seconds
    backward: Seconds
    reduce: Seconds
    gather: Seconds
    optimizer: Seconds
    parts: int
    send_forward: Seconds = 0.0
    send_backward: Seconds = 0.0
    traffic: Seconds = 0.0
    weight: Seconds = 0.0
    received: Seconds = 0.0
    lane: Seconds = 0.0

    @property
    def inputs(self) -> Seconds:
        """What of the backward the stage before waits for."""
        return self.backward - self.weight

    @property
    def both(self) -> Seconds:
        """One microbatch, forward and backward."""
        return self.forward + self.backward

    @property
    def busy(self) -> Seconds:
        """What one microbatch takes of a rank's time."""
        return self.both + self.send_forward + self.send_backward

    @property
    def slot(self) -> Seconds:
        """What one microbatch takes of the rank's time, of its data-parallel network's or of its messages' way: the most.

        Messages of one way go one behind the other; behind the last one come the next stage's work and the way back."""
        return max(self.busy, self.traffic, self.lane)

    def sending(self, ahead: Seconds, back: Seconds, lane: Seconds, weight: Seconds) -> StageCost:
        """The same stage with other messages, and with so much of its backward split off as W."""
        return StageCost(
            self.forward, self.backward, self.reduce, self.gather, self.optimizer, self.parts, ahead, back,
            self.traffic, weight, self.received, lane,
        )  # fmt: skip

    def bucketed(self, parts: int) -> StageCost:
        """The same stage with so many buckets, and without collectives of every microbatch."""
        return StageCost(
            self.forward, self.backward, self.reduce, self.gather, self.optimizer, parts, self.send_forward, self.send_backward,
            0.0, self.weight, self.received, self.lane,
        )  # fmt: skip

    def begin(self, fill: Seconds, config: ParallelConfig) -> Seconds:
        """When the first forward could have begun to end where it does, with activations at hand after `fill` seconds.

        Gathers ahead of a forward in n parts of f/n are a two-machine flow shop: it ends no sooner than gather + f/n, nor
        than one bucket and f; the gather of its message lies before all parts. Where the network is the bottleneck, its gathers
        are part of its slots. Of several virtual stages only the first waits for its gathers at the begin, and only the last
        reduces at the end: they count for nothing.
        """
        if not config.gathers_ahead or self.traffic > self.busy or config.vpp > 1:
            return fill
        n, forward = self.parts, self.forward - self.received
        return max(fill, max(self.gather / n, self.gather + forward / n - forward) - self.received)

    def tail(self, config: ParallelConfig, tied: Seconds = 0.0) -> Seconds:
        """Seconds from the end of the last backward (and its message) to the end of the step on this stage.

        Reductions behind a backward (or W) of n parts of b/n end no sooner than b + r/n and b/n + r after its begin. `tied` is
        the sum of a tied embedding's gradient, after the reduction.
        """
        n, last = self.parts, self.weight or self.backward
        behind, rest = last + self.send_backward, self.optimizer + tied
        if self.traffic > self.busy:
            return rest  # the network never rests: its last reduction is counted with its slots
        if not config.reduces_behind:
            rest += self.reduce
        elif config.vpp == 1:
            rest += max(0.0, last + self.reduce / n - behind, last / n + self.reduce - behind)
        return rest if config.gathers_ahead else rest + self.gather


def compute_seconds(
    device: DeviceSpec, workload: Workload, config: ParallelConfig, layers: int, first: bool, last: bool
) -> tuple[Seconds, Seconds]:
    """(forward, backward) seconds of a stage for one microbatch on one device, without communication."""
    forward, backward = (layers * seconds for seconds in compute.layer_seconds(device, workload, config))
    for here, part in ((first, compute.embedding_seconds), (last, compute.head_seconds)):
        if here:
            fw, bw = part(device, workload, config)
            forward, backward = forward + fw, backward + bw
    return forward, backward


def weight_seconds(device: DeviceSpec, workload: Workload, config: ParallelConfig, layers: int, last: bool) -> Seconds:
    """What of a stage's backward are weight gradients; 0 where the schedule does not split them off."""
    if not schedules.get(config.schedule).SPLITS_BACKWARD:
        return 0.0
    head = compute.head_parts(device, workload, config)[2] if last else 0.0
    return layers * compute.layer_parts(device, workload, config)[2] + head


def ring_windows(device: DeviceSpec, workload: Workload, config: ParallelConfig, layers: int) -> dict[str, Seconds]:
    """Attention seconds of a stage behind which keys and values go around the cp ring: "F", "B", and "R" of a forward again."""
    forward, backward = (layers * compute.ring_seconds(device, workload, config, way) for way in (False, True))
    return {"F": forward, "B": backward, "R": forward}


def optimizer_seconds(
    device: DeviceSpec, workload: Workload, config: ParallelConfig, layers: int, first: bool, last: bool
) -> Seconds:
    """Seconds of the optimizer step of a stage on one rank."""
    held = memory.by_sharing(workload, config, layers, first, last)
    owned = sum(parameters / (sharing if config.zero_stage >= 1 else 1) for _, parameters, sharing in held)
    row = compute.measured(device, workload, config)
    return row.update * owned if row and row.update else compute.optimizer_seconds(device, owned)


@dataclass(frozen=True, slots=True)
class StageCosts:
    """Costs of stages of any size on devices of given paces."""

    workload: Workload
    config: ParallelConfig
    paces: CollectiveCosts

    def of(
        self, layers: int, first: bool, last: bool, specs: tuple[DeviceSpec, ...] = (),
        times: tuple[Seconds, Seconds] | None = None,
    ) -> StageCost:  # fmt: skip
        """Costs of a stage of `layers` layers at an end of the pipeline or in its middle; the slowest of `specs` decides.

        `times` are its `passes`, where they are known."""
        config = self.config
        shape = (self.workload, config, layers, first, last)
        specs = specs or self.paces.specs
        times = times or self.passes(layers, first, last, specs)
        sync: dict[str, list[Seconds]] = {}
        for group, operation, nbytes, count in synchronisation(*shape):
            seconds = sync.setdefault(group, [0.0, 0.0])
            seconds[operation == "all_gather"] += self.paces.seconds(group, operation, nbytes, count)
        optimizer = max(optimizer_seconds(spec, *shape) for spec in specs)
        weight = max(weight_seconds(spec, self.workload, config, layers, last) for spec in specs)
        beside = config.reduces_behind, config.gathers_ahead  # else a rank waits for one group after the other
        reduce, gather = (
            (max if beside[way] else sum)([both[way] for both in sync.values()] or [0.0]) for way in (False, True)
        )
        reduces, gathers = int(config.reduces_each_microbatch), 2 * int(config.shards_parameters)
        traffic = max((reduces * both[0] + gathers * both[1] for both in sync.values()), default=0.0)
        buckets = payloads.buckets(*shape)
        received = self.received(first, last, False)
        return StageCost(
            times[0], times[1], reduce, gather, optimizer, buckets, traffic=traffic, weight=weight, received=received
        )

    def passes(self, layers: int, first: bool, last: bool, specs: tuple[DeviceSpec, ...] = ()) -> tuple[Seconds, Seconds]:
        """(forward, backward) seconds of a stage for one microbatch: `alone`, and the exchange of tokens with experts."""
        forward, backward = self.alone(layers, first, last, specs)
        experts = [
            sum(self.paces.seconds("ep", *one) for one in payloads.expert_collectives(self.workload, self.config, layers, way))
            for way in (False, True)
        ]
        return forward + experts[0], backward + experts[1]

    def alone(self, layers: int, first: bool, last: bool, specs: tuple[DeviceSpec, ...] = ()) -> tuple[Seconds, Seconds]:
        """`work` of a replica with what its own ranks exchange besides: what it takes wherever the others stand."""
        specs = specs or self.paces.specs
        forward, backward = (
            seconds + self.received(first, last, way) + self._ring(specs, layers, way)
            for way, seconds in zip((False, True), self.work(layers, first, last, specs), strict=True)
        )
        return forward, backward

    def received(self, first: bool, last: bool, backward: bool) -> Seconds:
        """What a stage does with a message before it computes: the gather of its slices (`payloads.gathered_bytes`)."""
        whole = 0.0 if (last if backward else first) else payloads.gathered_bytes(self.workload, self.config)
        return self.paces.seconds("tp", "all_gather", whole, 1) if whole else 0.0

    def work(self, layers: int, first: bool, last: bool, specs: tuple[DeviceSpec, ...] = ()) -> tuple[Seconds, Seconds]:
        """(forward, backward) seconds of a stage for one microbatch: compute and tensor-parallel collectives, nothing else."""
        shape = (self.workload, self.config, layers, first, last)
        specs = specs or self.paces.specs
        pairs = [compute_seconds(spec, *shape) for spec in specs]
        included = [compute.includes_collectives(spec, self.workload, self.config) for spec in specs]

        def seconds(backward: bool) -> Seconds:
            work = payloads.tensor_collectives(*shape, backward)
            tensor = sum(self.paces.seconds("tp", *one) for one in work) if not all(included) else 0.0
            return max(pair[backward] + (0.0 if inside else tensor) for pair, inside in zip(pairs, included, strict=True))

        return seconds(False), seconds(True)

    def _ring(self, specs: tuple[DeviceSpec, ...], layers: int, backward: bool) -> Seconds:
        """What the attention of the slowest of `specs` does not hide of the exchange around the cp ring."""
        exchanges = payloads.ring_exchanges(self.workload, self.config, layers, backward)
        windows = [ring_windows(spec, self.workload, self.config, layers) for spec in specs] if exchanges else []
        exposed = 0.0
        for way, nbytes, count in exchanges:
            hidden = max(window[way] for window in windows)
            exposed += max(0.0, self.paces.seconds("cp", "send_recv", nbytes, count) - hidden)
        return exposed

    def collective(self, kind: str, layers: int, first: bool, last: bool) -> str:
        """The collective to choose for a kind of group of such a stage."""
        shape = (self.workload, self.config, layers, first, last)
        if kind == "tp":
            both = (False, True)
            return self.paces.best("tp", [work for way in both for work in payloads.tensor_collectives(*shape, way)])
        return self.paces.best("dp", [work[1:] for work in synchronisation(*shape) if work[0] == "dp"])


def synchronisation(
    workload: Workload, config: ParallelConfig, layers: int, first: bool, last: bool
) -> tuple[tuple[str, str, Bytes, float], ...]:
    """(kind of group, operation, payload, count) of the gradient collectives of one stage in one step.

    By bucket where overlapped: then groups of two kinds reduce side by side, and the later of them decides, at least.
    """
    shape = (workload, config, layers, first, last)
    buckets = payloads.buckets(*shape)
    reduced = buckets if config.reduces_behind else config.vpp
    gradients = payloads.gradient_bytes(*shape)
    if config.zero_stage == 0:
        return tuple((group, "all_reduce", nbytes / reduced, reduced) for group, nbytes in gradients)
    gathered = buckets if config.gathers_ahead else config.vpp
    work = [(group, "reduce_scatter", nbytes / reduced, float(reduced)) for group, nbytes in gradients]
    work += [(group, "all_gather", nbytes / gathered, float(gathered)) for group, nbytes in payloads.parameter_bytes(*shape)]
    return tuple(work)


def place_devices(plan: Plan, place: int) -> tuple[tuple[Device, ...], ...]:
    """Devices of a pipeline place: a row for each rank of a dense weight's gradient group, a column for each tp rank."""
    config = plan.config
    return tuple(
        tuple(plan.placement[config.rank(tp, dp_cp, place)] for tp in range(config.tp)) for dp_cp in range(config.dp_cp)
    )


def replicas(plan: Plan) -> tuple[tuple[int, ...], ...]:
    """dp_cp indices by class: alike have equally many microbatches and, place by place, equal devices joined alike.

    Hosts are numbered through a replica's whole pipeline, so that the messages of alike replicas leave their nodes at the same
    borders of stages."""
    config = plan.config
    kinds: dict[DeviceSpec, int] = {}
    kind = {cluster.name: kinds.setdefault(cluster.node.device, len(kinds)) for cluster in plan.fleet.clusters}
    classes: dict[object, list[int]] = {}
    for dp_cp in range(config.dp_cp):
        key: list[object] = [config.microbatches_of(dp_cp)]
        hosts = dict[tuple[str, int], int]()
        for first in range(config.tp * dp_cp, config.world_size, config.tp * config.dp_cp):
            ring = plan.placement[first : first + config.tp]
            key += [(kind[d.cluster], hosts.setdefault((d.cluster, d.node), len(hosts))) for d in ring]
        classes.setdefault(tuple(key), []).append(dp_cp)
    return tuple(tuple(alike) for alike in classes.values())


class PlanCosts:
    """Closed forms of a plan: costs of its stages on a class of replicas, and of the messages between them."""

    def __init__(self, plan: Plan):
        self.plan, self.capacities = plan, Capacities(plan.fleet)
        self._chosen: list[dict[str, str]] = [{} for _ in range(plan.config.pp)]
        listed = (group for group in plan.groups if group.kind not in ("pp", "dp"))
        self._rings: dict[tuple[Device, ...], tuple[Device, ...]] = {}
        for group in (*listed, *gradient_groups(plan)):
            self._chosen[plan.config.place(group.ranks[0])[2]][group.kind] = group.collective
            ranked = tuple(sorted(group.ranks))
            if group.ranks != ranked:
                self._rings[tuple(plan.placement[rank] for rank in ranked)] = tuple(plan.placement[r] for r in group.ranks)
        self._nics = {group.ranks[0]: group.nic for group in plan.groups if group.kind == "pp"}
        self._paces: dict[int, CollectiveCosts] = {}
        self._messages: dict[tuple[object, ...], AlphaBeta] = {}
        self._among: dict[tuple[int, tuple[int, ...]], CollectiveCosts] = {}

    def stage(self, place: int, alike: tuple[int, ...], entry: bool = False) -> StageCost:
        """Cost of a pipeline place on replicas that are alike: of all its stages, or of the one that work enters first."""
        plan, config = self.plan, self.plan.config
        stages = plan.stages_of(place)[:1] if entry else plan.stages_of(place)
        layers = sum(plan.stages[stage].layers for stage in stages)
        cost = self.at(place, alike).of(layers, 0 in stages, config.num_stages - 1 in stages, self.specs(place, alike))
        ahead = self.message(place, place + 1, alike) if place + 1 < config.pp else 0.0
        if schedules.get(config.schedule).OVERLAPS_SENDS:
            return replace(cost, lane=ahead * (1 if entry else config.vpp))
        return replace(cost, send_forward=ahead, send_backward=self.message(place, place - 1, alike) if place else 0.0)

    @functools.cached_property
    def _sites(self) -> Sites:
        return Sites(self.plan)

    def at(self, place: int, alike: tuple[int, ...]) -> StageCosts:
        """Costs of stages on the devices of a pipeline place, of replicas that are alike."""
        if (place, alike) not in self._among:
            self._among[place, alike] = self._paces_of(place).among(alike)
        return StageCosts(self.plan.workload, self.plan.config, self._among[place, alike])

    def _paces_of(self, place: int) -> CollectiveCosts:
        if place not in self._paces:
            rows = ReplicaRows.of(self.plan.fleet, place_devices(self.plan, place))
            facts = self.plan.fleet, self.plan.config, rows, self.capacities, self._chosen[place], self._rings
            self._paces[place] = CollectiveCosts(*facts)
        return self._paces[place]

    def specs(self, place: int, alike: tuple[int, ...]) -> tuple[DeviceSpec, ...]:
        """Kinds of devices of a pipeline place on replicas that are alike."""
        plan, config = self.plan, self.plan.config
        ranks = (config.rank(tp, alike[0], place) for tp in range(config.tp))
        return tuple(dict.fromkeys(plan.fleet.spec(plan.placement[rank]) for rank in ranks))

    def message(self, source: int, target: int, alike: tuple[int, ...]) -> Seconds:
        """Seconds of the messages of alike replicas from one pipeline place to another, side by side on an idle network."""
        plan, config = self.plan, self.plan.config
        key: tuple[object, ...] = source, target, alike
        if key not in self._messages:
            width = config.tp * config.dp_cp
            chains = (config.tp * np.array(alike)[:, None] + np.arange(config.tp)).ravel()
            nics = [self._nics[chain] for chain in chains.tolist()]
            pairs = P2PLoad(plan, self._sites, chains + source * width, chains + target * width, nics)
            self._messages[key] = pairs.alpha_beta_cost("send_recv", self.capacities)
        return self._messages[key].seconds(payloads.message_bytes(plan.workload, config))

    def step(self, alike: tuple[int, ...], tied: Seconds) -> Seconds:
        """Closed form of a step for a class of replicas: its latest stage, fed by the stages before it."""
        config = self.plan.config
        microbatches = config.microbatches_of(alike[0])
        shape = config.pp, microbatches, config.vpp
        waits = not schedules.get(config.schedule).OVERLAPS_SENDS
        there = back = latest = first_tail = 0.0
        for place in range(config.pp):
            cost, entry = self.stage(place, alike), self.stage(place, alike, entry=True)
            owed = cost.weight * schedules.weights_behind(config.schedule, place, *shape)
            if place:
                there += self.message(place - 1, place, alike)
                back += self.message(place, place - 1, alike)
            else:
                first_tail = owed + cost.tail(config, tied)
            begun = cost.begin(there, config)
            after = [cost.tail(config, tied if place in (0, config.pp - 1) else 0.0)]
            if place:
                after.append(back - owed - (cost.send_backward if waits else 0.0) + first_tail)
            latest = max(latest, begun + microbatches * cost.slot + max(after))
            there = begun + entry.forward
            back += entry.inputs
        return latest


def messages_pace(
    fleet: Fleet, pairs: tuple[tuple[Device, Device, str], ...], capacities: Capacities, times: tuple[int, ...] = ()
) -> AlphaBeta:
    """AlphaBeta of one message between each (source, target, NIC), side by side on an idle network.

    `times` tells how often each is there, on trunks (`sim.network.alpha_beta`). Two devices of one node use the node's
    interconnect, whatever NIC their pipeline group has.
    """
    routes = [
        message_route(fleet, a, b, "intra_node" if (a.cluster, a.node) == (b.cluster, b.node) else nic) for a, b, nic in pairs
    ]
    return alpha_beta_cost(tuple(routes), capacities, times)


def tied_seconds(plan: Plan) -> Seconds:
    """Seconds of the sum of a tied embedding's gradient between the end stages, all chains side by side."""
    nbytes = payloads.tied_bytes(plan.workload, plan.config)
    if not nbytes:
        return 0.0
    groups, capacities = embedding_groups(plan.groups), Capacities(plan.fleet)
    ends = np.array([group.ranks for group in groups])
    nics = [group.nic for group in groups for _ in range(2)]
    pairs = P2PLoad(plan, Sites(plan), ends.ravel(), ends[:, ::-1].ravel(), nics)  # a ring of two: there and back
    kinds = dict.fromkeys((pairs.firsts // 2).tolist())
    members = (member(tuple(plan.placement[rank] for rank in groups[one].ranks), groups[one].nic, "ring") for one in kinds)
    found = []
    for protocol in protocols(plan.fleet, tuple(members), "all_reduce"):
        there, back = (pairs.path(way, "all_reduce", protocol) for way in (0, 1))
        latency = max(there.overhead, back.overhead) + (there.latency + back.latency)
        found.append(AlphaBeta(latency, pairs.per_byte("all_reduce", capacities, protocol)))
    return min(one.seconds(nbytes) for one in found)


def step_seconds(plan: Plan) -> Seconds:
    """Closed form of a step: that of its slowest class of replicas.

    A stage cannot begin before the first microbatch has passed all stages before it; after its last backward its own
    optimizer follows, and the backwards of the stages before it and then the first stage's. Weight gradients that are split
    off and lie behind the last B hold up their own stage only. With virtual stages only the first of every place is passed.
    Contention between unlike flows, interference and waiting for later stages are left out, so the engine is not faster than
    this on the same plan.
    """
    found, tied = PlanCosts(plan), tied_seconds(plan)
    return max(found.step(alike, tied) for alike in replicas(plan))


def upper_bound_seconds(plan: Plan) -> Seconds:
    """HETHUB's yardstick (arXiv 2405.16256): the step if every device were busy all the time at the speed it reaches alone.

    A device's own speed is that of the plan's tp, ep, microbatch size and recomputation on its own cluster, tensor-parallel
    collectives included, without bubble, pipeline or data-parallel communication. All devices of the fleet count.
    """
    config, workload = plan.config, plan.workload
    rate = 0.0
    for cluster in plan.fleet.clusters:
        if not cluster.node.device.runs(workload.precision):
            continue
        width = min(config.tp, cluster.node.count)
        ring = tuple(Device(cluster.name, 0, index) for index in range(width))
        alone = _alone(config, width)
        paces = CollectiveCosts(plan.fleet, alone, ReplicaRows.of(plan.fleet, (ring,)), Capacities(plan.fleet))
        seconds = sum(StageCosts(workload, alone, paces).work(workload.model.layers, True, True))
        rate += cluster.devices / width * config.microbatch_size / seconds
    return workload.global_batch_size / rate


def _alone(config: ParallelConfig, tp: int) -> ParallelConfig:
    return ParallelConfig(
        tp=tp,
        dp=config.ep,
        ep=config.ep,
        num_microbatches=(1,) * config.ep,
        microbatch_size=config.microbatch_size,
        recompute=config.recompute,
        sequence_parallel=config.sequence_parallel and tp > 1,
        attention=config.attention,
        gradient_precision=config.gradient_precision,
    )
