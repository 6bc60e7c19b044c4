"""Closed form of a plan's step on an idle network, and an upper bound on throughput."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np

from sim.analytic.stage_costs import StageCost, StageCosts
from sim.hardware.cluster import Device, DeviceSpec, Fleet
from sim.kernels import lowering
from sim.network.collective_costs import CollectiveCosts
from sim.network.p2p_load import Pairs
from sim.network.replica_rows import Rows
from sim.network.rings import Sites
from sim.network.routes import AlphaBeta, Capacities, member, message_route, pace, protocols
from sim.plan import schedules
from sim.plan.plan import ParallelConfig, Plan, embedding_groups, gradient_groups
from sim.units import Seconds


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
            rows = Rows.of(self.plan.fleet, place_devices(self.plan, place))
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
            pairs = Pairs(plan, self._sites, chains + source * width, chains + target * width, nics)
            self._messages[key] = pairs.pace("send_recv", self.capacities)
        return self._messages[key].seconds(lowering.message_bytes(plan.workload, config))

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

    `times` tells how often each is there, on trunks (`sim.network.routes.pace`). Two devices of one node use the node's
    interconnect, whatever NIC their pipeline group has.
    """
    routes = [
        message_route(fleet, a, b, "intra_node" if (a.cluster, a.node) == (b.cluster, b.node) else nic) for a, b, nic in pairs
    ]
    return pace(tuple(routes), capacities, times)


def tied_seconds(plan: Plan) -> Seconds:
    """Seconds of the sum of a tied embedding's gradient between the end stages, all chains side by side."""
    nbytes = lowering.tied_bytes(plan.workload, plan.config)
    if not nbytes:
        return 0.0
    groups, capacities = embedding_groups(plan.groups), Capacities(plan.fleet)
    ends = np.array([group.ranks for group in groups])
    nics = [group.nic for group in groups for _ in range(2)]
    pairs = Pairs(plan, Sites(plan), ends.ravel(), ends[:, ::-1].ravel(), nics)  # a ring of two: there and back
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
        paces = CollectiveCosts(plan.fleet, alone, Rows.of(plan.fleet, (ring,)), Capacities(plan.fleet))
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
