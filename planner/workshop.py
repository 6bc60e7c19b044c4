"""What many shapes and strategies of one question share: paces and messages on the fleet, and answers already thought out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TypeAlias

from planner.lines import Run, rows
from planner.question import Question
from planner.shapes import Shape, slot, slots, splitting, spread, uneven
from sim.cluster import Cluster, Device, Fleet, common_transport
from sim.costs import StageCost, StageCosts, messages_pace
from sim.errors import HolmesError, Infeasible, PlanError
from sim.lowering import message_bytes, tied_bytes
from sim.paces import Paces
from sim.plan import Plan
from sim.routes import Capacities, Pace, member, ways
from sim.rows import Rows

SOON = 5.0
"""Seconds that a quick strategy has in any case."""


class Workshop:
    """What many shapes and strategies share, built once for a question. `progress` is told now and then how far things are."""

    def __init__(self, question: Question, progress: Callable[[str], None] = lambda text: None):
        self.question, self.progress = question, progress
        self.deadline = time.monotonic() + question.time_limit
        self.variables = 0  # of all stage programmes solved so far: the work done, counted alike on every machine
        self.interrupted = False
        self.played: list[Plan] = []  # what certified has played, for objectives other than the step time
        self._answers: dict[str, Plan | HolmesError] = {}
        self.fleet = question.topology.fleet
        self.capacities = Capacities(self.fleet)
        # nodes may be chosen so that messages need not cross the spine: none of them is charged for it before that
        self.open = replace(self.fleet, clusters=tuple(replace(cluster, fabric=None) for cluster in self.fleet.clusters))
        self.open_capacities = Capacities(self.open)
        self._paces: dict[tuple[str | int | None, ...], tuple[Paces, ...]] = {}
        self._costs: dict[tuple[str, Shape], tuple[StageCosts, ...]] = {}
        self._layers: dict[tuple[str, Shape], tuple[float, float]] = {}
        self._least: dict[tuple[str, Shape], dict[tuple[str, int], StageCost]] = {}
        self._hops: dict[tuple[object, ...], Pace | None] = {}
        self._tied: dict[tuple[str, str, int, int, int], tuple[Pace, ...]] = {}
        self._messages: dict[tuple[str, str, int, int, int, str], tuple[Pace, ...]] = {}

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

    def paces(self, cluster: Cluster, shape: Shape) -> tuple[Paces, ...]:
        """Paces of the stages of a cluster, one for each way they can lie on its nodes."""
        key = cluster.name, shape.tp, shape.dp, shape.cp, shape.ep, shape.zero_stage, shape.zero_shard_size
        if key not in self._paces:
            config = shape.config(self.question.workload, 1)
            per_node = cluster.node.count // shape.tp
            ways = max(1, min(per_node // math.gcd(per_node, shape.slots), slots(cluster, shape.tp) // shape.slots))
            firsts = (index * shape.slots % per_node for index in range(ways))  # each from the first node of a leaf
            stages = (rows((Run(cluster, first, shape.slots),), shape.tp) for first in firsts)
            self._paces[key] = tuple(Paces(self.fleet, config, stage, self.capacities) for stage in stages)
        return self._paces[key]

    def costs(self, cluster: Cluster, shape: Shape) -> tuple[StageCosts, ...]:
        """Costs of the stages of a cluster, one for each way they can lie on its nodes; the backward in two."""
        key = cluster.name, splitting(shape)
        if key not in self._costs:
            config = key[1].config(self.question.workload, 2)
            self._costs[key] = tuple(StageCosts(self.question.workload, config, paces) for paces in self.paces(cluster, shape))
        return self._costs[key]

    def spread(self, cluster: Cluster, shape: Shape) -> StageCosts | None:
        """Costs of a stage that lies evenly on its nodes, alone on a cluster; None where it does so when it fills them."""
        if not uneven(cluster, shape, 1):
            return None
        config = splitting(shape).config(self.question.workload, 2)
        key = cluster.name, "evenly", shape.tp, shape.dp, shape.zero_stage, shape.zero_shard_size
        if key not in self._paces:
            rows = Rows.of(self.fleet, spread(cluster, shape.tp, shape.slots))
            self._paces[key] = (Paces(self.fleet, config, rows, self.capacities),)
        return StageCosts(self.question.workload, config, *self._paces[key])

    def layer(self, cluster: Cluster, shape: Shape) -> tuple[float, float]:
        """(forward, backward) seconds of one microbatch on one layer; without cp and ep the same for any number of replicas."""
        one = replace(splitting(shape), dp=1, zero_stage=1, zero_shard_size=None)
        key = cluster.name, one
        if key not in self._layers:
            ones, twos = ([costs.work(k, False, False) for costs in self.costs(cluster, one)] for k in (1, 2))
            forward, backward = (min(two[way] - one[way] for one, two in zip(ones, twos, strict=True)) for way in (0, 1))
            self._layers[key] = forward, backward
        return self._layers[key]

    def least(self, cluster: Cluster, shape: Shape) -> dict[tuple[str, int], StageCost]:
        """Where the least costs of a cluster's stages by role and layers are kept, for all schedules."""
        return self._least.setdefault((cluster.name, splitting(shape)), {})

    def message(self, source: Cluster, target: Cluster, shape: Shape, nic: str = "") -> float:
        """Least seconds of the messages between neighbouring stages on two clusters, over the best NIC or over a given type.

        Infinite where nothing joins them.
        """
        key = source.name, target.name, shape.tp, shape.dp, shape.cp, nic
        if key not in self._messages:
            self._messages[key] = tuple(self._message_paces(source, target, shape, nic))
        nbytes = message_bytes(self.question.workload, shape.config(self.question.workload, 2))
        return min((found.seconds(nbytes) for found in self._messages[key]), default=math.inf)

    def _message_paces(self, source: Cluster, target: Cluster, shape: Shape, nic: str) -> Iterator[Pace]:
        """Paces between neighbouring stages; of one cluster, those inside a node and those out of it."""
        fleet = self.open
        ends = [(0, 0)]
        if source == target:
            per_node = math.ceil(source.node.count // shape.tp / shape.slots)
            ends = [(i, i + 1) for i in range(min(per_node, slots(source, shape.tp) // shape.slots - 1))]
        for i, j in ends:
            with suppress(PlanError):
                pairs = _hop(fleet.cluster(source.name), i, fleet.cluster(target.name), j, shape, nic)
                chosen = tuple((x, y, nic or common_transport(fleet, (x, y))[0]) for x, y, *_ in pairs)
                yield messages_pace(fleet, chosen, self.open_capacities, tuple(many for *_, many in pairs))

    def nic_of(self, clusters: tuple[Cluster, ...]) -> str:
        """The NIC type of a pipeline that stands on these clusters. Raises PlanError where nothing joins them."""
        ends = (slot(cluster, 1, index)[0] for cluster in clusters for index in (0, slots(cluster, 1) - 1))
        return common_transport(self.fleet, tuple(dict.fromkeys(ends)))[0]

    def hop(self, source: Cluster, i: int, target: Cluster, j: int, shape: Shape, nic: str) -> float:
        """Seconds of the messages from stage i of a cluster to stage j of one, over a NIC type where they leave a node."""
        key = source.name, i, target.name, j, shape.tp, shape.dp, shape.cp, nic
        if key not in self._hops:
            last = slots(target, shape.tp) // shape.slots - 1
            self._hops[key] = self._pace(self.fleet, _hop(source, i, target, min(j, last), shape, nic))
        return self._seconds(self._hops[key], shape)

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
            with suppress(PlanError):
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

    def _both_ways(self, fleet: Fleet, hops: list[Hop]) -> Pace | None:
        """Pace of all hops and those back at once: what the fullest link needs for each byte, however late it begins."""
        found = self._pace(fleet, [*hops, *((target, source, nic, many) for source, target, nic, many in hops)])
        return replace(found, latency=0.0) if found is not None else None

    def _pace(self, fleet: Fleet, hops: list[Hop]) -> Pace | None:
        pairs = tuple((source, target, nic) for source, target, nic, _ in hops)
        capacities = self.capacities if fleet is self.fleet else self.open_capacities
        return messages_pace(fleet, pairs, capacities, tuple(many for *_, many in hops)) if pairs else None

    def _seconds(self, pace: Pace | None, shape: Shape) -> float:
        nbytes = message_bytes(self.question.workload, shape.config(self.question.workload, 2))
        return pace.seconds(nbytes) if pace is not None else 0.0

    def crossing(self, source: Cluster, others: list[Cluster], shape: Shape) -> float:
        """Least seconds of a message of a stage on `source` in a pipeline that also stands on other clusters.

        A pipeline group speaks over one NIC type that all its members have, so its messages inside the cluster use it too.
        """
        fleet, best = self.fleet, math.inf
        for other in others:
            if other != source:
                try:
                    nic, _ = common_transport(fleet, (slot(source, 1, 0)[0], slot(other, 1, 0)[0]))
                except PlanError:
                    continue
                best = min(best, self.message(source, other, shape))
                if slots(source, shape.tp) >= 2 * shape.slots:
                    best = min(best, self.message(source, source, shape, nic))
        return best

    def tied(self, first: Cluster, last: Cluster, shape: Shape) -> float:
        """Seconds of the tied embedding's sum between end stages on two clusters."""
        workload = self.question.workload
        nbytes = tied_bytes(workload, shape.config(workload, 2))
        if not nbytes or (first == last and slots(first, shape.tp) < 2 * shape.slots):
            return 0.0
        key = first.name, last.name, shape.tp, shape.dp, shape.cp
        if key not in self._tied:
            self._tied[key] = self._tied_paces(first, last, shape)
        return min((pace.seconds(nbytes) for pace in self._tied[key]), default=math.inf)

    def _tied_paces(self, first: Cluster, last: Cluster, shape: Shape) -> tuple[Pace, ...]:
        """Paces of the ways in which end stages on two clusters can sum, none where nothing joins them."""
        a, b = (self.open.cluster(cluster.name) for cluster in (first, last))
        pairs = _hop(a, 0, b, 1 if a == b else 0, shape, "")
        try:
            ends = tuple(member((x, y), common_transport(self.open, (x, y))[0], "ring") for x, y, *_ in pairs)
        except PlanError:
            return ()
        times = tuple(many for *_, many in pairs)
        return tuple(way.pace for way in ways(self.open, ends, "all_reduce", self.open_capacities, times))


Stages: TypeAlias = tuple[Cluster, int, int]
"""Neighbouring stages of a cluster: the first of them, and how many there are."""
Hop: TypeAlias = tuple[Device, Device, str, int]
"""Two devices, the NIC type between them where it is not a node's inside, and how many pairs like them there are on trunks."""


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
