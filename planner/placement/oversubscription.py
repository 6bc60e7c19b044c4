"""Oversubscription cost: the closed form of a step with the plan's nodes under other leaf switches.

Only the links between leaves depend on the assignment of nodes to leaves. A message takes the maximum of its time without a
spine and the time that the busiest uplink or downlink needs for all concurrent messages. The same holds for a ring. In
addition, the rings of all stages share the spine, because all stages gather weights at the begin of a step and reduce gradients
at its end; the closed form of a plan omits this. Where gathers and reductions follow every microbatch (ZeRO 2 and 3), the ring
delays the concurrent forward or backward. These are guesses about contention on the spine, used to choose an assignment; the
predicted step time comes from the engine's simulation."""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sim.analytic import plan_costs, stage_amounts
from sim.analytic.stage_costs import StageCost, StageCosts
from sim.hardware.cluster import Device, Fleet
from sim.kernels import payloads
from sim.network.alpha_beta import protocol_costs
from sim.network.collective_costs import CollectiveCosts
from sim.network.paths import Capacities, End, Traffic, capacity, path
from sim.network.protocols import protocols
from sim.network.replica_rows import ReplicaRows
from sim.network.routes import member
from sim.plan import schedules
from sim.plan.derived_groups import embedding_groups
from sim.plan.plan import Plan
from sim.units import Seconds

Integers: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Transfers:
    """Transfers between nodes, in seconds of the source's uplink and of the target's downlink; `of` is the owner of each."""

    of: Integers
    source: Integers
    target: Integers
    up: Floats
    down: Floats

    def crossing(self, leaves: Integers) -> _Transfers:
        """The transfers between different leaves."""
        which = leaves[self.source] != leaves[self.target]
        return _Transfers(*(column[which] for column in (self.of, self.source, self.target, self.up, self.down)))

    def alone(self, leaves: Integers, many: int) -> Floats:
        """Seconds of the busiest link of each of `many` owners if no other owner uses the spine."""
        crossing, width = self.crossing(leaves), int(leaves.max()) + 1
        ups = np.bincount(crossing.of * width + leaves[crossing.source], crossing.up, many * width)
        downs = np.bincount(crossing.of * width + leaves[crossing.target], crossing.down, many * width)
        found: Floats = np.maximum(ups, downs).reshape(many, width).max(axis=1)
        return found

    def together(self, leaves: Integers, many: int) -> Floats:
        """Seconds of the busiest link of each of `many` owners if all use the spine at once."""
        crossing, width = self.crossing(leaves), int(leaves.max()) + 1
        ups = np.bincount(leaves[crossing.source], crossing.up, width)
        downs = np.bincount(leaves[crossing.target], crossing.down, width)
        found = np.zeros(many)
        np.maximum.at(found, crossing.of, np.maximum(ups[leaves[crossing.source]], downs[leaves[crossing.target]]))
        return found

    def total(self, leaves: Integers) -> Seconds:
        """Sum of the seconds of all uplinks and downlinks."""
        crossing = self.crossing(leaves)
        return float(crossing.up.sum() + crossing.down.sum())


@dataclass(frozen=True, slots=True)
class _Loads:
    """Seconds on the spine: messages of a microbatch from stage to stage + 1 and back, rings by stage, the tied embedding."""

    ahead: Floats
    back: Floats
    reduce: Floats
    gather: Floats
    tied: Seconds


class OversubscriptionCosts(plan_costs.PlanCosts):
    """Closed form of a plan whose nodes are under given leaves: the maximum of the time without a spine and that on the spine.

    Replicas are assumed identical. Costs that do not depend on leaves are computed once for all stages with equal geometry.
    """

    def __init__(self, plan: Plan):
        super().__init__(plan)
        config, fleet = plan.config, plan.fleet
        clusters = fleet.clusters
        self.flat = replace(fleet, clusters=tuple(replace(cluster, fabric=None) for cluster in clusters))
        self.idle = Capacities(self.flat)
        self.every_replica = tuple(range(config.dp_cp))
        nodes = [0, *itertools.accumulate(cluster.nodes for cluster in clusters)]
        self.first_node = {cluster.name: first for cluster, first in zip(clusters, nodes, strict=False)}
        widths = [cluster.fabric.nodes_per_leaf if cluster.fabric else 1 for cluster in clusters]
        counts = [-(-cluster.nodes // width) for cluster, width in zip(clusters, widths, strict=True)]
        firsts = [0, *itertools.accumulate(counts)]
        self.first_leaf = {cluster.name: first for cluster, first in zip(clusters, firsts, strict=False)}
        numbered = zip(clusters, widths, firsts, strict=False)
        self.leaves: Integers = np.concatenate([first + np.arange(c.nodes) // width for c, width, first in numbered])
        heads = plan.placement[:: config.tp]
        self.node: Integers = np.array([self.first_node[d.cluster] + d.node for d in heads]).reshape(config.pp, config.dp_cp)
        self.index: Integers = np.array([d.index for d in heads]).reshape(config.pp, config.dp_cp)
        self.cluster = [heads[stage * config.dp_cp].cluster for stage in range(config.pp)]
        self.chains = {group.ranks[0]: group.nic for group in plan.groups if group.kind == "pp"}
        self.rings = {config.coordinates(group.ranks[0])[2]: group.nic for group in plan.groups if group.kind == "dp"}
        self._stages: dict[tuple[object, ...], StageCost] = {}
        self._collectives_without_spine: dict[tuple[object, ...], CollectiveCosts] = {}

        self._tables()
        self.loads = self._loads(self.leaves)

    def used(self, cluster: str) -> Integers:
        """Nodes of a cluster that hold a rank, ascending."""
        return np.unique(self.node[[name == cluster for name in self.cluster]])

    def stage_of(self, nodes: Integers) -> Integers:
        """The first stage on each node."""
        found = np.full(len(self.leaves), len(self.node))
        np.minimum.at(found, self.node, np.arange(len(self.node))[:, None])
        return found[nodes]

    def evaluate(self, leaves: Integers) -> tuple[Seconds, Seconds]:
        """(seconds of a step with the nodes under these leaves, seconds of all uplinks in it), rounded to nine digits."""
        self.loads = self._loads(leaves)
        config = self.plan.config
        m = config.num_microbatches[0]
        reduces = m if config.reduces_each_microbatch else 1
        gathers = 2 * m if config.shards_parameters else 1
        often = ((self._ahead, m * config.vpp), (self._back, m * config.vpp), (self._reduce, reduces), (self._gather, gathers))
        busy = sum(times * table.total(leaves) for table, times in often)
        return float(f"{self.step(self.every_replica, max(self._tied_idle, self.loads.tied)):.9g}"), float(f"{busy:.9g}")

    def at(self, pp_rank: int, replicas: tuple[int, ...], stages: tuple[int, ...]) -> StageCosts:
        """Costs of some stages of a pipeline rank on its devices, without a spine."""
        key = self._geometry(pp_rank)
        if key not in self._collectives_without_spine:
            rows = ReplicaRows.of(self.flat, plan_costs.pipeline_rank_devices(self.plan, pp_rank))
            self._collectives_without_spine[key] = CollectiveCosts(self.flat, self.plan.config, rows, self.idle)
        own = self._collectives_without_spine[key]
        return StageCosts(self.plan.workload_of(stages), self.plan.config_of(stages), own)

    def stage(self, stage: int, replicas: tuple[int, ...], entry: bool = False) -> StageCost:
        """Cost of a stage; its rings and messages take their time on the spine where that is longer."""
        config = self.plan.config
        stages = self.plan.stages_of(stage)
        sizes = tuple(self.plan.stages[stage].layers for stage in stages)
        key = (*self._geometry(stage), sizes, stage == 0, stage + 1 == config.pp, entry)
        if key not in self._stages:
            self._stages[key] = super().stage(stage, replicas, entry)
        cost, loads = self._stages[key], self.loads
        reduce, gather = max(cost.reduce, float(loads.reduce[stage])), max(cost.gather, float(loads.gather[stage]))
        beside = gather if config.shards_parameters else 0.0, reduce if config.reduces_each_microbatch else 0.0
        forward, backward = max(cost.forward, beside[0]), max(cost.backward, sum(beside))
        cost = cost._replace(forward=forward, backward=backward, reduce=reduce, gather=gather, traffic=sum(beside) + beside[0])
        if schedules.get(config.schedule).OVERLAPS_SENDS:
            return cost
        ahead = self.message(stage, stage + 1, replicas) if stage + 1 < config.pp else 0.0
        return cost._replace(send_forward=ahead, send_backward=self.message(stage, stage - 1, replicas) if stage else 0.0)

    def message(self, source: int, target: int, replicas: tuple[int, ...]) -> Seconds:
        """Seconds of the concurrent messages of all replicas between neighbouring stages."""
        key = (*self._geometry(source), *self._geometry(target), int(self.node[target, 0] - self.node[source, 0]))
        if key not in self._messages:
            ends = (itertools.chain(*plan_costs.pipeline_rank_devices(self.plan, stage)) for stage in (source, target))
            pairs = tuple((*pair, self.chains[chain]) for chain, pair in enumerate(zip(*ends, strict=True)))
            self._messages[key] = plan_costs.messages_alpha_beta(self.flat, pairs, self.idle)
        found = self._messages[key]
        spine = self.loads.ahead[source] if source < target else self.loads.back[target]
        nbytes = payloads.message_bytes(self.plan.workload, self.plan.config)
        return max(found.seconds(nbytes), found.latency + float(spine))

    def _geometry(self, stage: int) -> tuple[object, ...]:
        """Geometry of a stage: its cluster, and the relative nodes and device indices of its ranks."""
        nodes = self.node[stage] - self.node[stage, 0]
        return self.cluster[stage], nodes.tobytes(), self.index[stage].tobytes()

    def _tables(self) -> None:
        """Compute the transfers between nodes of all messages and rings."""
        config, workload = self.plan.config, self.plan.workload
        stages = np.arange(config.pp)
        nbytes = config.tp * payloads.message_bytes(workload, config)
        self._ahead = self._between(stages[:-1], stages[1:], "send_recv", nbytes)
        self._back = self._between(stages[1:], stages[:-1], "send_recv", nbytes)
        self._tied = self._between(stages[:1], stages[-1:], "all_reduce", config.tp * payloads.tied_bytes(workload, config))
        ends = np.array([self._volumes(stage) for stage in range(config.pp)])
        self._reduce, self._gather = (self._around(ends[:, column], gathers) for column, gathers in ((0, False), (1, True)))
        self._tied_idle = self._tied_without_spine()

    def _tied_without_spine(self) -> Seconds:
        """Seconds of the tied embedding's all-reduce on the first node, representative of all: nodes share trunks only."""
        plan, nbytes = self.plan, payloads.tied_bytes(self.plan.workload, self.plan.config)
        if not nbytes:
            return 0.0
        replicas = int(np.count_nonzero(self.node[0] == self.node[0, 0]))
        here, copies = plan.config.tp * replicas, -(-plan.config.dp // replicas)
        listed = embedding_groups(plan, (group for group in plan.groups if group.ranks[0] < here))
        members = tuple(member(tuple(plan.placement[rank] for rank in g.ranks), g.nic, "ring") for g in listed)
        found = protocol_costs(self.flat, members, "all_reduce", self.idle, (copies,) * len(members))
        return min(one.cost.seconds(nbytes) for one in found)

    def _volumes(self, stage: int) -> tuple[float, float]:
        """Bytes over each edge of all rings of a stage: (to reduce gradients, to gather weights)."""
        plan, config = self.plan, self.plan.config
        stages, found, n = plan.stages_of(stage), [0.0, 0.0], config.dp
        layers = sum(plan.stages[stage].layers for stage in stages)
        for _, operation, nbytes, count in stage_amounts.synchronisation(plan.workload, config, layers, *plan.ends(stages)):
            rounds = 2 * (n - 1) if operation == "all_reduce" else n - 1
            found[operation == "all_gather"] += config.tp * nbytes * count * rounds / n
        return found[0], found[1]

    def _around(self, volumes: Floats, gathers: bool) -> _Transfers:
        operation = "all_gather" if gathers else self.plan.config.reduction
        source, target = self.node, np.roll(self.node, -1, axis=1)
        nics = (self.rings.get(stage, "") for stage in range(len(source)))
        rates = [_uplink(self.plan.fleet, name, nic, operation) for name, nic in zip(self.cluster, nics, strict=True)]
        return _transfers(source, target, volumes * rates, volumes * rates)

    def _between(self, sources: Integers, targets: Integers, operation: str, nbytes: float) -> _Transfers:
        """Transfers from the ranks of some stages to those of others, `nbytes` by each replica."""
        nic = next((nic for nic in self.chains.values() if nic != "intra_node"), "")
        rates = np.array([_uplink(self.plan.fleet, name, nic, operation) for name in self.cluster])
        return _transfers(self.node[sources], self.node[targets], nbytes * rates[sources], nbytes * rates[targets])

    def _loads(self, leaves: Integers) -> _Loads:
        pairs, stages = len(self.node) - 1, len(self.node)
        return _Loads(
            self._ahead.alone(leaves, pairs),
            self._back.alone(leaves, pairs),
            self._reduce.together(leaves, stages),
            self._gather.together(leaves, stages),
            float(self._tied.alone(leaves, 1)[0]),
        )


def _transfers(source: Integers, target: Integers, up: Floats, down: Floats) -> _Transfers:
    """One transfer for each pair of nodes; `up` and `down` are the seconds of each row of the arrays."""
    of = np.arange(len(source))[:, None] + np.zeros_like(source)
    return _Transfers(of.ravel(), source.ravel(), target.ravel(), up[of].ravel(), down[of].ravel())


@functools.lru_cache(maxsize=256)
def _uplink(fleet: Fleet, name: str, nic: str, operation: str) -> float:
    """Seconds per byte of a leaf's uplink; 0 where the cluster has no fabric or the NIC stays inside a node."""
    cluster = fleet.cluster(name)
    if cluster.fabric is None or nic in ("", "intra_node"):
        return 0.0
    devices = Device(name, 0, 0), Device(name, cluster.fabric.nodes_per_leaf, 0)
    offers = protocols(fleet, (member(devices, nic, "ring"),), operation)
    source, target = (End(device, (0,)) for device in devices)
    routes = (path(fleet, source, target, Traffic(nic, operation, 1, 2, protocol)) for protocol in offers)
    return min(w / capacity(fleet, link) for found in routes for link, w in found.use if link[0] == "leaf" and link[-1] == "up")
