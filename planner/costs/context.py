"""What many shapes and strategies of one request share: paces and messages on the fleet, and answers already thought out."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import product
from typing import Any, TypeAlias

from planner.request import Request
from planner.space.device_slots import Run, rows
from planner.space.shapes import Shape, slot, slots, splitting, spread, uneven
from sim.analytic.plan_costs import messages_alpha_beta
from sim.analytic.stage_costs import StageCost, StageCosts
from sim.errors import HolmesError, Infeasible, NoRoute
from sim.hardware.cluster import Cluster, Device, Fleet
from sim.hardware.transport import common_transport, joint_nics
from sim.kernels.payloads import message_bytes, tied_bytes
from sim.network.alpha_beta import AlphaBeta, protocol_costs
from sim.network.collective_costs import CollectiveCosts
from sim.network.paths import Capacities
from sim.network.replica_rows import ReplicaRows
from sim.network.routes import member, message_route
from sim.plan.plan import Plan

SOON = 5.0
"""Seconds that a quick strategy has in any case."""


class PlanningContext:
    """What many shapes and strategies share, built once for a request. `progress` is told now and then how far things are."""

    def __init__(self, request: Request, progress: Callable[[str], None] = lambda text: None):
        self.request, self.progress = request, progress
        self.deadline = time.monotonic() + request.time_limit
        self.variables = 0  # of all stage programmes solved so far: the work done, counted alike on every machine
        self.interrupted = False
        self.simulated: list[Plan] = []  # what certified has simulated, for objectives other than the step time
        self._answers: dict[str, Plan | HolmesError] = {}
        self.fleet = request.topology.fleet
        self.capacities = Capacities(self.fleet)
        # nodes may be chosen so that messages need not cross the spine: none of them is charged for it before that
        self.open = replace(self.fleet, clusters=tuple(replace(cluster, fabric=None) for cluster in self.fleet.clusters))
        self.open_capacities = Capacities(self.open)
        self.options: dict[Shape, list[Any]] = {}  # of the last shapes that were looked at (planner.costs.node_classes.options)
        self.passes: dict[tuple[str, Shape, str], tuple[tuple[float, float], tuple[float, float]]] = {}  # of 1 and 2 layers
        self.bytes: dict[tuple[Shape, int, str], tuple[tuple[float, float], ...]] = {}  # of stages of 1 and 2 layers, by role
        self.deferred: dict[tuple[Shape, int, str], tuple[float, ...]] = {}
        self._paces: dict[tuple[str | int | None, ...], tuple[CollectiveCosts, ...]] = {}
        self._costs: dict[tuple[str, Shape], tuple[StageCosts, ...]] = {}
        self._layers: dict[tuple[str, Shape], tuple[float, float]] = {}
        self._least: dict[tuple[str, Shape], dict[tuple[str, int], StageCost]] = {}
        self._hops: dict[tuple[object, ...], AlphaBeta | None] = {}
        self._tied: dict[tuple[object, ...], tuple[AlphaBeta, ...]] = {}
        self._messages: dict[tuple[object, ...], tuple[AlphaBeta, ...]] = {}
        self._message_seconds: dict[tuple[object, ...], float] = {}
        self._nics: dict[tuple[str, ...], str] = {}

    def until(self) -> float:
        """When a quick strategy that begins now should be done: by the deadline, or soon where that is near or over."""
        return max(self.deadline, time.monotonic() + SOON)

    def answer(self, strategy: str, think: Callable[[], Plan]) -> Plan:
        """What a strategy answers, thought out once; raises again what it raised."""
        if strategy not in self._answers:
            self.progress(f"strategy {strategy}")
            try:
                self._answers[strategy] = think()
            except Infeasible as error:
                self._answers[strategy] = error
        found = self._answers[strategy]
        if isinstance(found, HolmesError):
            raise found
        return found

    def paces(self, cluster: Cluster, shape: Shape) -> tuple[CollectiveCosts, ...]:
        """CollectiveCosts of the stages of a cluster, one for each way they can lie on its nodes."""
        key = cluster.name, shape.tp, shape.dp, shape.cp, shape.ep, shape.zero_stage, shape.zero_shard_size
        if key not in self._paces:
            config = shape.config(self.request.workload, 1)
            per_node, stages = cluster.node.count // shape.tp, slots(cluster, shape.tp) // shape.slots
            ways = max(1, min(_period(cluster, shape), stages))
            firsts = (index * shape.slots % per_node for index in range(ways))  # each from the first node of a leaf
            lying = (rows((Run(cluster, first, shape.slots),), shape.tp) for first in firsts)
            self._paces[key] = tuple(CollectiveCosts(self.fleet, config, stage, self.capacities) for stage in lying)
        return self._paces[key]

    def costs(self, cluster: Cluster, shape: Shape) -> tuple[StageCosts, ...]:
        """Costs of the stages of a cluster, one for each way they can lie on its nodes; the backward in two."""
        key = cluster.name, splitting(shape)
        if key not in self._costs:
            config = key[1].config(self.request.workload, 2)
            self._costs[key] = tuple(StageCosts(self.request.workload, config, paces) for paces in self.paces(cluster, shape))
        return self._costs[key]

    def spread(self, cluster: Cluster, shape: Shape) -> StageCosts | None:
        """Costs of a stage that lies evenly on its nodes, alone on a cluster; None where it does so when it fills them."""
        if not uneven(cluster, shape, 1):
            return None
        config = splitting(shape).config(self.request.workload, 2)
        key = cluster.name, "evenly", shape.tp, shape.dp, shape.zero_stage, shape.zero_shard_size
        if key not in self._paces:
            rows = ReplicaRows.of(self.fleet, spread(cluster, shape.tp, shape.slots))
            self._paces[key] = (CollectiveCosts(self.fleet, config, rows, self.capacities),)
        return StageCosts(self.request.workload, config, *self._paces[key])

    def layer(self, cluster: Cluster, shape: Shape) -> tuple[float, float]:
        """(forward, backward) seconds of one microbatch on one layer; without cp and ep the same for any number of replicas."""
        one = single(shape)
        key = cluster.name, one
        if key not in self._layers:
            ones, twos = ([costs.work(k, False, False) for costs in self.costs(cluster, one)] for k in (1, 2))
            forward, backward = (min(two[way] - one[way] for one, two in zip(ones, twos, strict=True)) for way in (0, 1))
            self._layers[key] = forward, backward
        return self._layers[key]

    def least(self, cluster: Cluster, shape: Shape) -> dict[tuple[str, int], StageCost]:
        """Where the least costs of a cluster's stages by role and layers are kept, for all schedules."""
        return self._least.setdefault((cluster.name, splitting(shape)), {})

    def in_step(self, clusters: Iterable[Cluster], shape: Shape) -> bool:
        """Whether the replicas of a pipeline on these clusters keep step, because their stages lie alike on nodes.

        Each stage fills whole nodes or a whole part of one. Only then do the messages of all replicas always travel together
        and share links; elsewhere one replica may run ahead of the others and find its links free."""
        widths = {cluster.node.count // shape.tp for cluster in clusters}
        return not any(shape.slots % width and width % shape.slots for width in widths if width)

    def _able(self, shape: Shape) -> list[Cluster]:
        """Clusters that have room for a stage."""
        return [cluster for cluster in self.request.clusters() if slots(cluster, shape.tp) >= shape.slots]

    def message(
        self, source: Cluster, target: Cluster, shape: Shape, nic: str = "", clusters: tuple[Cluster, ...] = (),
        in_step: bool = False,
    ) -> float:  # fmt: skip
        """Least seconds of the messages between neighbouring stages on two clusters, wherever they lie on their nodes.

        Over a NIC type, or the best of all that can join them. They are those of the first rank of the first replica (`hop`) in
        a pipeline on `clusters`, or on any: a bound. Where replicas are taken to keep step in any case (`in_step`), they are an
        estimate. Infinite where nothing joins the two."""
        in_step = in_step or self.in_step(clusters or self._able(shape), shape)
        way = source.name, target.name, shape.tp, shape.dp, shape.cp, nic, in_step
        key = *way, shape.microbatch_size
        if key not in self._message_seconds:
            if way not in self._messages:
                self._messages[way] = tuple(self._message_paces(source, target, shape, nic, in_step))
            nbytes = message_bytes(self.request.workload, shape.config(self.request.workload, 2))
            self._message_seconds[key] = min((found.seconds(nbytes) for found in self._messages[way]), default=math.inf)
        return self._message_seconds[key]

    def _message_paces(self, source: Cluster, target: Cluster, shape: Shape, nic: str, in_step: bool) -> Iterator[AlphaBeta]:
        """CollectiveCosts between neighbouring stages, however they lie on their nodes, over every NIC type that can join them.

        A pipeline speaks over one type, which its other clusters may decide, so it need not be the fastest of these two."""
        fleet, stages = self.open, slots(source, shape.tp) // shape.slots
        a, b = fleet.cluster(source.name), fleet.cluster(target.name)
        last = stages - 1 if source == target else stages
        ends = [(i, i + 1 if source == target else 0) for i in range(min(_period(source, shape), last))]
        for (i, j), kind in product(ends, [nic] if nic else _kinds(fleet, source, target)):
            with suppress(NoRoute):
                yield _first_pace(fleet, _hop(a, i, b, j, shape, kind), self.open_capacities, in_step)

    def nic_of(self, clusters: tuple[Cluster, ...]) -> str:
        """The NIC type of a pipeline that stands on these clusters. Raises NoRoute where nothing joins them."""
        names = tuple(cluster.name for cluster in clusters)
        if names not in self._nics:
            ends = (slot(cluster, 1, index)[0] for cluster in clusters for index in (0, slots(cluster, 1) - 1))
            self._nics[names] = common_transport(self.fleet, tuple(dict.fromkeys(ends)))[0]
        return self._nics[names]

    def hop(self, source: Cluster, i: int, target: Cluster, j: int, shape: Shape, nic: str, in_step: bool = True) -> float:
        """Seconds of the message of the first rank from stage i of a cluster to stage j of one, on an idle network.

        Over a NIC type where it leaves a node. Replicas in step share the links (`in_step`). A step takes no less than its
        first replica does, so what that one waits for is a bound; where all lie alike, it is what each of them waits for."""
        i, j = self._near(source, i, target, j, shape)
        key = source.name, i, target.name, j, shape.tp, shape.dp, shape.cp, nic, in_step
        if key not in self._hops:
            self._hops[key] = _first_pace(self.fleet, _hop(source, i, target, j, shape, nic), self.capacities, in_step)
        return self._seconds(self._hops[key], shape)

    def _near(self, source: Cluster, i: int, target: Cluster, j: int, shape: Shape) -> tuple[int, int]:
        """The first stages of two clusters that lie on nodes, and to each other, as stages i and j do."""
        if source != target:
            return _alike(i, source, shape, 0), _alike(j, target, shape, 0)
        if j == i + 1:
            first = _alike(i, source, shape, 0)
            return first, first + 1
        first, second = min(i, j), max(i, j)
        if first == 0:
            second = _alike(second, source, shape, _apart(source, shape))
        return (first, second) if i < j else (second, first)

    def through(self, cluster: Cluster, stages: int, shape: Shape, nic: str) -> float:
        """`load` of one microbatch's messages on the first `stages` stages of a cluster, of one virtual stage each."""
        return self.load(((cluster, 0, stages),), replace(shape, vpp=1), nic, self.open)

    def load(self, runs: tuple[Stages, ...], shape: Shape, nic: str, fleet: Fleet, whole: bool = False) -> float:
        """Seconds that the messages of a microbatch, both ways, take on the fullest link of neighbours in a pipeline.

        A node inside the pipeline sends activations to one side and gradients to the other. Of many stages of a run those at
        both ends stand for all. A `whole` pipeline of virtual stages also sends from its last place to its first.
        """
        key = *((cluster.name, first, count) for cluster, first, count in runs), shape.tp, shape.dp, shape.cp, shape.vpp, nic
        key = *key, whole, fleet is self.open
        if key not in self._hops:
            hops: list[Hop] = []
            for place, (cluster, first, count) in enumerate(runs):
                near = 2 * len(self.costs(cluster, shape))
                for i in range(first, first + count - 1):
                    if i < first + near or i >= first + count - 1 - near:
                        hops += _hop(cluster, i, cluster, i + 1, shape, nic)
                if place + 1 < len(runs):
                    hops += _hop(cluster, first + count - 1, runs[place + 1][0], runs[place + 1][1], shape, nic)
            hops *= shape.vpp
            if whole:
                (head, first, _), (cluster, last, count) = runs[0], runs[-1]
                hops += _hop(cluster, last + count - 1, head, first, shape, nic) * (shape.vpp - 1)
            self._hops[key] = self._both_ways(fleet, hops)
        return self._seconds(self._hops[key], shape)

    def fullest(self, runs: tuple[tuple[Cluster, int], ...], shape: Shape, nic: str) -> float:
        """`load` of a whole pipeline with so many stages on these clusters, from the first node of each on."""
        return self.load(tuple((cluster, 0, count) for cluster, count in runs), shape, nic, self.fleet, True)

    def throughs(self, cluster: Cluster, others: list[Cluster], shape: Shape) -> tuple[float, float]:
        """Least seconds of `through` of a node of a cluster, in a pipeline inside the cluster and in one that leaves it."""
        ways = len(self.costs(cluster, shape))
        stages = slots(cluster, shape.tp) // shape.slots
        if stages <= ways:
            return 0.0, 0.0
        inside = self.through(cluster, min(3 * ways, stages), shape, self.nic_of((cluster,))) if stages > 2 * ways else 0.0
        crossing = math.inf
        for other in others:
            with suppress(NoRoute):
                if other != cluster:
                    crossing = min(crossing, self._beside(cluster, other, shape, self.nic_of((cluster, other))))
        return inside, crossing if math.isfinite(crossing) else 0.0

    def _beside(self, cluster: Cluster, other: Cluster, shape: Shape, nic: str) -> float:
        """Least `through` of a node between a node of its cluster and another cluster, however the stages at its ends lie."""
        ways, there = len(self.costs(cluster, shape)), len(self.costs(other, shape))
        least = math.inf
        for last in range(ways, min(2 * ways, slots(cluster, shape.tp) // shape.slots)):
            for peer in range(there):
                key = cluster.name, last, other.name, peer, "beside", shape.tp, shape.dp, shape.cp, nic
                if key not in self._hops:
                    hops = [hop for i in range(ways - 1, last) for hop in _hop(cluster, i, cluster, i + 1, shape, nic)]
                    self._hops[key] = self._both_ways(self.open, hops + _hop(cluster, last, other, peer, shape, nic))
                least = min(least, self._seconds(self._hops[key], shape))
        return least

    def _both_ways(self, fleet: Fleet, hops: list[Hop]) -> AlphaBeta | None:
        """AlphaBeta of all hops and those back at once: what the fullest link needs for each byte, however late it begins."""
        found = self._pace(fleet, [*hops, *((target, source, nic, many) for source, target, nic, many in hops)])
        return replace(found, latency=0.0) if found is not None else None

    def _pace(self, fleet: Fleet, hops: list[Hop]) -> AlphaBeta | None:
        pairs = tuple((source, target, nic) for source, target, nic, _ in hops)
        capacities = self.capacities if fleet is self.fleet else self.open_capacities
        return messages_alpha_beta(fleet, pairs, capacities, tuple(many for *_, many in hops)) if pairs else None

    def _seconds(self, pace: AlphaBeta | None, shape: Shape) -> float:
        nbytes = message_bytes(self.request.workload, shape.config(self.request.workload, 2))
        return pace.seconds(nbytes) if pace is not None else 0.0

    def crossing(self, source: Cluster, others: list[Cluster], shape: Shape) -> float:
        """An estimate of the least seconds of a message of a stage on `source` in a pipeline that leaves the cluster.

        A pipeline group speaks over one NIC type that all its members have, so its messages inside the cluster use it too.
        """
        best = math.inf
        for other in others:
            for nic in joint_nics(self.fleet, (source.name, other.name)) if other != source else ():
                best = min(best, self.message(source, other, shape, nic.kind, in_step=True))
                if slots(source, shape.tp) >= 2 * shape.slots:
                    best = min(best, self.message(source, source, shape, nic.kind, in_step=True))
        return best

    def tied(self, first: Cluster, last: Cluster, index: int, shape: Shape, nic: str) -> float:
        """Seconds of the tied embedding's sum between the first stage of a cluster and stage `index` of one, the last.

        Over a NIC type where they lie on unlike nodes; 0 where the embedding is not tied. Raises NoRoute."""
        nbytes = self._tied_bytes(shape)
        return min(pace.seconds(nbytes) for pace in self._tied_paces(first, last, index, shape, nic)) if nbytes else 0.0

    def least_tied(self, first: Cluster, last: Cluster, shape: Shape, most: int, nic: str = "") -> float:
        """The least of `tied` wherever the last stage lies, with up to `most` stages on its cluster.

        Over any NIC type where none is given; infinite where nothing joins the two."""
        least, nbytes = math.inf, self._tied_bytes(shape)
        if not nbytes:
            return 0.0
        fewest = 1 if first == last else 0  # a pipeline of one stage sums nothing
        indices = range(fewest, min(most, _apart(first, shape) + _period(last, shape)))
        for index, kind in product(indices, [nic] if nic else _kinds(self.fleet, first, last)):
            with suppress(NoRoute):
                least = min(least, self.tied(first, last, index, shape, kind))
        return least

    def _tied_bytes(self, shape: Shape) -> float:
        return tied_bytes(self.request.workload, shape.config(self.request.workload, 2))

    def _tied_paces(self, first: Cluster, last: Cluster, index: int, shape: Shape, nic: str) -> tuple[AlphaBeta, ...]:
        """CollectiveCosts of the ways in which two end stages can sum."""
        index = _alike(index, last, shape, _apart(first, shape) if first == last else 0)
        key = first.name, last.name, index, shape.tp, shape.dp, shape.cp, nic
        if key not in self._tied:
            a, b = (self.open.cluster(cluster.name) for cluster in (first, last))
            pairs = _hop(a, 0, b, index, shape, nic)
            ends = tuple(member((x, y), nic, "ring") for x, y, *_ in pairs)
            times = tuple(many for *_, many in pairs)
            found = protocol_costs(self.open, ends, "all_reduce", self.open_capacities, times)
            self._tied[key] = tuple(replace(way.cost, latency=min(route.latency for route in way.routes)) for way in found)
        return self._tied[key]


Stages: TypeAlias = tuple[Cluster, int, int]
"""Neighbouring stages of a cluster: the first of them, and how many there are."""
Hop: TypeAlias = tuple[Device, Device, str, int]
"""Two devices, the NIC type between them where it is not a node's inside, and how many pairs like them there are on trunks."""


@functools.lru_cache(maxsize=4096)
def single(shape: Shape) -> Shape:
    """The shape with one replica, under a schedule that splits the backward."""
    return replace(splitting(shape), dp=1, zero_stage=1, zero_shard_size=None)


def _first_pace(fleet: Fleet, hops: list[Hop], capacities: Capacities, in_step: bool) -> AlphaBeta:
    """AlphaBeta of the first of some messages: on links that it shares with the others where they keep step, else alone."""
    some = hops if in_step else hops[:1]
    routes = [
        message_route(fleet, a, b, "intra_node" if (a.cluster, a.node) == (b.cluster, b.node) else nic) for a, b, nic, _ in some
    ]
    (first,) = routes[0].legs
    load = dict.fromkeys((link for link, _ in first.use), 0.0)
    for route, (*_, many) in zip(routes, some, strict=True):
        for link, weight in route.legs[0].use:
            if link in load:
                load[link] += weight * (many if link[0] == "trunk" and in_step else 1)
    return AlphaBeta(routes[0].latency, max(weight / capacities(link) for link, weight in load.items()))


def _period(cluster: Cluster, shape: Shape) -> int:
    """After how many stages the next one lies on its nodes as the first does."""
    per_node = cluster.node.count // shape.tp
    return per_node // math.gcd(per_node, shape.slots)


def _apart(cluster: Cluster, shape: Shape) -> int:
    """The first stage of a cluster that shares no node with stage 0."""
    per_node = cluster.node.count // shape.tp
    return math.ceil(math.ceil(shape.slots / per_node) * per_node / shape.slots)


def _alike(index: int, cluster: Cluster, shape: Shape, first: int) -> int:
    """The first stage from `first` on that lies as stage `index` does; the stage itself where it is before `first`."""
    return index if index < first else first + (index - first) % _period(cluster, shape)


def _kinds(fleet: Fleet, source: Cluster, target: Cluster) -> list[str]:
    """NIC types over which two clusters can communicate; the inside of a node where they are one without any."""
    names = (source.name,) if source == target else (source.name, target.name)
    return [nic.kind for nic in joint_nics(fleet, names)] or (["intra_node"] if source == target else [])


def _hop(source: Cluster, i: int, target: Cluster, j: int, shape: Shape, nic: str) -> list[Hop]:
    """Devices of stage i of a cluster, each with its peer of stage j of a cluster.

    Without leaf switches the first nodes stand for all: replicas lie on them as on the others, and share but trunks with them.
    """
    whole = source.fabric or target.fabric  # nodes of a leaf share its uplinks
    widths = {cluster.node.count // shape.tp for cluster in (source, target)}
    even = len(widths) == 1 and shape.slots % max(widths) == 0  # all begin with a node, so one of them stands for all
    some = max(widths) if even else 3 * max(source.node.count, target.node.count) // shape.tp
    many = shape.slots if whole else min(shape.slots, some)
    ends = (source, i * shape.slots), (target, j * shape.slots)
    stages = (tuple(slot(cluster, shape.tp, first + d) for d in range(many)) for cluster, first in ends)
    each, more = divmod(shape.slots, many)
    return [
        (x, y, nic, each + (d < more))
        for d, (p, q) in enumerate(zip(*stages, strict=True))
        for x, y in zip(p, q, strict=True)
        if x != y
    ]
