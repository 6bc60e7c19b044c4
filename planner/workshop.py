"""What many shapes and strategies of one question share: paces and messages on the fleet, and answers already thought out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress

from planner.question import Question
from planner.shapes import Shape, slot, slots
from sim.cluster import Cluster, Device, common_transport
from sim.costs import messages_pace
from sim.errors import HolmesError, Infeasible, PlanError
from sim.lowering import message_bytes, tied_bytes
from sim.paces import Paces
from sim.plan import Plan
from sim.routes import Capacities, Pace, member, ways


class Workshop:
    """What many shapes and strategies share, built once for a question. `progress` is told now and then how far things are."""

    def __init__(self, question: Question, progress: Callable[[str], None] = lambda text: None):
        self.question, self.progress = question, progress
        self.variables = 0  # of all stage programmes solved so far: the work done, counted alike on every machine
        self.interrupted = False
        self._answers: dict[str, Plan | HolmesError] = {}
        self.capacities = Capacities(question.topology.fleet)
        self._paces: dict[tuple[str | int | None, ...], tuple[Paces, ...]] = {}
        self._messages: dict[tuple[str, str, int, int, int, str], tuple[Pace, ...]] = {}

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
            stages = (_stage_devices(cluster, shape, index) for index in range(ways))
            self._paces[key] = tuple(Paces(self.question.topology.fleet, config, s, self.capacities) for s in stages)
        return self._paces[key]

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
        fleet = self.question.topology.fleet
        ends = [(0, 0)]
        if source == target:
            per_node = math.ceil(source.node.count // shape.tp / shape.slots)
            ends = [(i, i + 1) for i in range(min(per_node, slots(source, shape.tp) // shape.slots - 1))]
        for i, j in ends:
            stages = _stage_devices(source, shape, i), _stage_devices(target, shape, j)
            pairs = [(x, y) for p, q in zip(*stages, strict=True) for x, y in zip(p, q, strict=True)]
            with suppress(PlanError):
                chosen = tuple((x, y, nic or common_transport(fleet, (x, y))[0]) for x, y in pairs)
                yield messages_pace(fleet, chosen, self.capacities)

    def crossing(self, source: Cluster, others: list[Cluster], shape: Shape) -> float:
        """Least seconds of a message of a stage on `source` in a pipeline that also stands on other clusters.

        A pipeline group speaks over one NIC type that all its members have, so its messages inside the cluster use it too.
        """
        fleet, best = self.question.topology.fleet, math.inf
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
        fleet, workload = self.question.topology.fleet, self.question.workload
        nbytes = tied_bytes(workload, shape.config(workload, 2))
        if not nbytes or (first == last and slots(first, shape.tp) < 2 * shape.slots):
            return 0.0
        a, b = _stage_devices(first, shape, 0), _stage_devices(last, shape, 1 if first == last else 0)
        ends = []
        for p, q in zip(a, b, strict=True):
            for x, y in zip(p, q, strict=True):
                try:
                    nic, _ = common_transport(fleet, (x, y))
                except PlanError:
                    return math.inf
                ends.append(member((x, y), nic, "ring"))
        return min(way.pace.seconds(nbytes) for way in ways(fleet, tuple(ends), "all_reduce", self.capacities))


def _stage_devices(cluster: Cluster, shape: Shape, index: int) -> tuple[tuple[Device, ...], ...]:
    return tuple(slot(cluster, shape.tp, index * shape.slots + d) for d in range(shape.slots))
