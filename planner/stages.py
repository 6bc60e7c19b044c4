"""The stage model: which class of machines runs how many stages, of how many layers each.

Machines of one cluster are alike and form a class; the number of variables depends on classes and layers, never on devices.
For one shape (all degrees but pp) and one order of the classes along the pipeline:

Sets        c in classes, in pipeline order; k = 1 .. K[c] layers
Data        m microbatches; slot[c,k], forward[c,k], backward[c,k], tail[c,k] seconds of a stage; message[c] seconds between stages;
            capacity[c] stages; held[c,k] microbatches whose activations fit beside k layers; tied[a,b] seconds of the tied embedding
Variables   first[c,k], last[c,k] binary      the end stages (embedding and head make them costlier)
            n[c,k] integer                    middle stages
            z[c,k] binary, falling in k       some middle stage of c has at least k layers
            step >= 0
Minimise    step
Subject to
  one_first, one_last     sum first = 1, sum last = 1
  layers                  sum k (first + n + last) = layers of the model
  capacity[c]             sum_k (first + n + last)[c,k] <= capacity[c]
  order_*[c]              no stage stands before the class of the first stage, or behind that of the last
  chain[c,k]              z[c,k] >= z[c,k+1];   at_least[c,k]: sum_{j >= k} n[c,j] <= capacity[c] z[c,k]
  memory[c,k]             stages of c with at least k layers, all stages behind c and the last one <= held[c,k], where z[c,k]
                          (1F1B holds one microbatch for each stage from here to the end; larger stages stand further back)
  step bounds             for the first stage, the largest middle stage of each class and the last stage: forwards of the stages before
                          + m slot + its own tail, and + m slot + backwards of the stages before + the first stage's tail

Each step bound is a statement about every 1F1B pipeline, so the optimum is a lower bound on the step time of all plans of
this shape whose classes stand in this order and whose stages grow within a class, on an idle network.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import permutations

from planner.milp import Expression, Programme, Variable, count, total
from planner.question import Question
from planner.shapes import Shape, slot, slots
from sim import memory, schedules
from sim.cluster import Cluster, Device, common_transport
from sim.costs import Paces, StageCost, StageCosts, by_host, messages_pace
from sim.errors import HolmesError, Infeasible, PlanError
from sim.lowering import message_bytes, tied_bytes
from sim.model import Workload
from sim.plan import ParallelConfig, Plan
from sim.routes import Capacities, Pace, collective_route, pace


@dataclass(frozen=True, slots=True)
class Assignment:
    """Stages in pipeline order as (cluster, layers); what the stage model promises, and the bound it proves."""

    stages: tuple[tuple[str, int], ...]
    seconds: float
    bound: float
    proved: bool
    solver: str


class Workshop:
    """What many shapes and strategies share, built once for a question. `progress` is told now and then how far things are."""

    def __init__(self, question: Question, progress: Callable[[str], None] = lambda text: None):
        self.question, self.progress = question, progress
        self._answers: dict[str, Plan | HolmesError] = {}
        self.capacities = Capacities(question.topology.fleet)
        self._paces: dict[tuple[str, int, int, int], Paces] = {}
        self._messages: dict[tuple[str, str, int, int, str], Pace | None] = {}

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

    def paces(self, cluster: Cluster, shape: Shape) -> Paces:
        """Paces of the first stage that stands on a cluster."""
        key = cluster.name, shape.tp, shape.dp, shape.zero_stage
        if key not in self._paces:
            devices = _stage_devices(cluster, shape, 0)
            config = shape.config(self.question.workload, 1)
            self._paces[key] = Paces(self.question.topology.fleet, config, devices, self.capacities)
        return self._paces[key]

    def message(self, source: Cluster, target: Cluster, shape: Shape, nic: str = "") -> float:
        """Seconds of the messages between neighbouring stages on two clusters, over the best NIC or over a given type.

        Infinite where nothing joins them.
        """
        key = source.name, target.name, shape.tp, shape.dp, nic
        if key not in self._messages:
            self._messages[key] = self._message_pace(source, target, shape, nic)
        found = self._messages[key]
        if found is None:
            return math.inf
        return found.seconds(message_bytes(self.question.workload, shape.config(self.question.workload, 2)))

    def _message_pace(self, source: Cluster, target: Cluster, shape: Shape, nic: str) -> Pace | None:
        fleet = self.question.topology.fleet
        ends = _stage_devices(source, shape, 0), _stage_devices(target, shape, 1 if source == target else 0)
        pairs = [(x, y) for p, q in zip(*ends, strict=True) for x, y in zip(p, q, strict=True)]
        try:
            return messages_pace(
                fleet, tuple((x, y, nic or common_transport(fleet, (x, y))[0]) for x, y in pairs), self.capacities
            )
        except PlanError:
            return None

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
                if slots(source, shape.tp) >= 2 * shape.dp:
                    best = min(best, self.message(source, source, shape, nic))
        return best

    def tied(self, first: Cluster, last: Cluster, shape: Shape) -> float:
        """Seconds of the tied embedding's sum between end stages on two clusters."""
        fleet, workload = self.question.topology.fleet, self.question.workload
        nbytes = tied_bytes(workload, shape.config(workload, 2))
        if not nbytes or (first == last and slots(first, shape.tp) < 2 * shape.dp):
            return 0.0
        a, b = _stage_devices(first, shape, 0), _stage_devices(last, shape, 1 if first == last else 0)
        routes = []
        for p, q in zip(a, b, strict=True):
            for x, y in zip(p, q, strict=True):
                try:
                    nic, _ = common_transport(fleet, (x, y))
                except PlanError:
                    return math.inf
                routes.append(collective_route(fleet, tuple(by_host((x, y))), nic, "ring", "all_reduce"))
        return pace(tuple(routes), self.capacities).seconds(nbytes)


def _stage_devices(cluster: Cluster, shape: Shape, index: int) -> tuple[tuple[Device, ...], ...]:
    return tuple(slot(cluster, shape.tp, index * shape.dp + d) for d in range(shape.dp))


class ClassOption:
    """What one class offers to one shape: costs and memory of its stages by role and layers."""

    def __init__(self, workshop: Workshop, cluster: Cluster, shape: Shape, others: list[Cluster]):
        question = workshop.question
        self.cluster, self.shape, self.workload = cluster, shape, question.workload
        self.capacity = slots(cluster, shape.tp) // shape.dp
        self.microbatches = shape.microbatches(self.workload)
        self.config = shape.config(self.workload, 2)
        self.costs = StageCosts(self.workload, self.config, workshop.paces(cluster, shape))
        self.crossing = workshop.crossing(cluster, others, shape)
        inside = workshop.message(cluster, cluster, shape) if self.capacity > 1 else math.inf
        self.message = min(inside, self.crossing)
        if not math.isfinite(self.message):
            self.message = 0.0
        self.detour = self.crossing - self.message if math.isfinite(self.crossing) else 0.0
        self.waits = not schedules.get(shape.schedule).OVERLAPS_SENDS
        self._costs: dict[tuple[str, int], StageCost] = {}

    def cost(self, role: str, layers: int) -> StageCost:
        """Costs of a stage in a role: first, middle, last, or only."""
        if (role, layers) not in self._costs:
            cost = self.costs.of(layers, role in ("first", "only"), role in ("last", "only"))
            ahead = self.message if self.waits and role in ("first", "middle") else 0.0
            back = self.message if self.waits and role in ("last", "middle") else 0.0
            self._costs[role, layers] = replace(cost, send_forward=ahead, send_backward=back)
        return self._costs[role, layers]

    def held(self, role: str, layers: int) -> float:
        """Microbatches whose activations fit beside a stage of `layers` layers; negative where not even the weights fit."""
        empty, one = (self.bytes_at(role, layers, held) for held in (0, 1))
        room = self.cluster.node.device.memory - empty
        return math.floor(room / (one - empty) * (1 + 1e-12))

    def bytes_at(self, role: str, layers: int, held: int = 1) -> float:
        """Bytes of a rank of such a stage that holds so many microbatches."""
        ends = role in ("first", "only"), role in ("last", "only")
        config = shape_alone(self.config) if role == "only" else self.config
        return memory.place_bytes(self.workload, config, layers, held * config.vpp, *ends)

    @property
    def least_held(self) -> int:
        """Microbatches that any stage must hold: one under 1F1B, all under GPipe."""
        return self.microbatches if self.shape.schedule == "gpipe" else 1

    def entry(self, role: str, layers: int) -> tuple[float, float]:
        """(forward, backward) seconds of the virtual stage that work enters first: all of the stage where vpp is 1."""
        share = (layers // self.shape.vpp) / layers
        cost = self.cost(role, layers)
        return cost.forward * share, cost.backward * share

    @functools.cached_property
    def layer_seconds(self) -> float:
        """Seconds of one microbatch on one layer, forward and backward: what no stage of the class can beat."""
        return self.cost("middle", 2).both - self.cost("middle", 1).both

    def layers(self, role: str, cutoff: float) -> list[int]:
        """Sizes of a stage that fit memory and can still lead to a step below `cutoff` seconds."""
        found = []
        for layers in range(1, self.workload.model.layers + 1):
            if self.held(role, layers) < self.least_held or self.microbatches * self.cost(role, layers).slot > cutoff:
                break
            found.append(layers)
        return found


def shape_alone(config: ParallelConfig) -> ParallelConfig:
    """The configuration of a pipeline of one place."""
    return replace(config, pp=1)


def options(workshop: Workshop, shape: Shape) -> list[ClassOption]:
    """Classes that can hold at least one stage of a shape."""
    fitting = [
        cluster
        for cluster in workshop.question.clusters()
        if cluster.node.count >= shape.tp and slots(cluster, shape.tp) >= shape.dp
    ]
    return [ClassOption(workshop, cluster, shape, fitting) for cluster in fitting]


def quick_bound(workshop: Workshop, shape: Shape, classes: list[ClassOption]) -> float:
    """A lower bound on the step of a shape without solving: stages always at work, layers divided at will.

    Either the pipeline stays in one class, where equal stages must also fill and drain it; or it crosses, and the stages at
    both ends of a border spend the message's time besides: T >= (L + sum of x / t) / (sum of 1 / t) over stages of t seconds a layer, and one
    such stage holds a layer at least.
    """
    question = workshop.question
    layers, m, pinned = question.workload.model.layers, shape.microbatches(question.workload), question.wishes.pp
    bound = math.inf
    for option in classes:
        most = min(option.capacity, pinned or layers, layers)
        if pinned in (None, most):
            fill = (1 - 1 / most) / shape.vpp
            bound = min(bound, layers * option.layer_seconds * (m / most + fill))
    speeds = sorted((1 / c.layer_seconds for c in classes for _ in range(c.capacity)), reverse=True)[: pinned or layers]
    if len(classes) > 1 and len(speeds) >= (pinned or 2):
        waits = not schedules.get(shape.schedule).OVERLAPS_SENDS
        pairs = [(a, b) for a in classes for b in classes if a is not b]
        border = min(workshop.message(a.cluster, b.cluster, shape) for a, b in pairs) if waits else 0.0
        crossing = max((layers + 2 * border * speeds[-1]) / sum(speeds), border + 1 / speeds[0])
        bound = min(bound, m * crossing)
    return bound


def orders(workshop: Workshop, classes: list[ClassOption]) -> list[tuple[ClassOption, ...]]:
    """Orders of the classes along the pipeline: all of up to three, else the cheapest path over the borders, both ways."""
    if len(classes) <= 3:
        return list(permutations(classes))
    shape = classes[0].shape

    def price(order: tuple[ClassOption, ...]) -> float:
        return sum(workshop.message(a.cluster, b.cluster, shape) for a, b in zip(order, order[1:], strict=False))

    best = min(permutations(classes), key=price) if len(classes) <= 7 else _greedy_order(classes, price)
    return [best, best[::-1]]


def _greedy_order(
    classes: list[ClassOption], price: Callable[[tuple[ClassOption, ...]], float]
) -> tuple[ClassOption, ...]:
    """Insert class after class where it lengthens the path least."""
    path: tuple[ClassOption, ...] = ()
    for option in classes:
        path = min((path[:i] + (option,) + path[i:] for i in range(len(path) + 1)), key=price)
    return path


def alone(option: ClassOption, cutoff: float) -> Assignment | None:
    """The pipeline of one place, where it fits: its step is a closed form."""
    layers = option.workload.model.layers
    if option.held("only", layers) < option.least_held or option.shape.vpp > 1:
        return None
    cost, config = option.cost("only", layers), shape_alone(option.config)
    seconds = cost.begin(0.0, config) + option.microbatches * cost.slot + cost.tail(config)
    if seconds >= cutoff:
        return None
    return Assignment(((option.cluster.name, layers),), seconds, seconds, True, "closed form")


def solve(
    workshop: Workshop, order: tuple[ClassOption, ...], pp: int | None, cutoff: float, time_limit: float
) -> Assignment | None:
    """The best assignment of layers to a pipeline of two or more places in this order of classes, or None."""
    model = _StageModel(workshop, order, pp, cutoff)
    if not model.possible:
        return None
    solution = model.programme.solve(time_limit)
    if solution is None:
        return None
    return Assignment(model.stages(), solution.objective, solution.bound, solution.proved, solution.solver)


class _StageModel:
    """The programme of the module docstring, in its order."""

    def __init__(self, workshop: Workshop, order: tuple[ClassOption, ...], pp: int | None, cutoff: float):
        self.workshop, self.order, self.pp = workshop, order, pp
        self.names = [option.cluster.name for option in order]
        self.sizes = {
            (role, i): option.layers(role, cutoff) for i, option in enumerate(order) for role in ("first", "middle", "last")
        }
        self.possible = all(any(self.sizes[role, i] for i in range(len(order))) for role in ("first", "last"))
        if self.possible:
            self._build(cutoff)

    def _build(self, cutoff: float) -> None:
        self.programme = Programme("stages")
        p, classes = self.programme, range(len(self.order))
        self.first = {(i, k): p.binary(f"first[{self.names[i]},{k}]") for i in classes for k in self.sizes["first", i]}
        self.last = {(i, k): p.binary(f"last[{self.names[i]},{k}]") for i in classes for k in self.sizes["last", i]}
        self.middle = {
            (i, k): p.integer(f"n[{self.names[i]},{k}]", 0, self.order[i].capacity)
            for i in classes
            for k in self.sizes["middle", i]
        }
        self.chain = {(i, k): p.binary(f"z[{self.names[i]},{k}]") for i, k in self.middle}
        self.step, self.tied, self.crosses = p.real("step", up=cutoff), p.real("tied"), p.real("crosses")
        p.minimise(total([(self.step, 1.0)]))
        self._shape()
        self._order()
        self._chain()
        self._memory()
        self._step_bounds()

    def _shape(self) -> None:
        p, everything = self.programme, [self.first, self.middle, self.last]
        p.require("one_first", total((v, 1) for v in self.first.values()) == 1)
        p.require("one_last", total((v, 1) for v in self.last.values()) == 1)
        layers = self.order[0].workload.model.layers
        p.require("layers", total((v, k) for group in everything for (_, k), v in group.items()) == layers)
        for i, option in enumerate(self.order):
            used = total((v, 1) for group in everything for (c, _), v in group.items() if c == i)
            p.require(f"capacity[{self.names[i]}]", used <= option.capacity)
        if self.pp is not None:
            p.require("pp", total((v, 1) for v in self.middle.values()) == self.pp - 2)

    def _order(self) -> None:
        """Nothing stands before the first stage's class or behind the last stage's class."""
        for i, option in enumerate(self.order):
            middle = [(v, 1.0) for (c, _), v in self.middle.items() if c == i]
            later_first = [(v, float(option.capacity)) for (c, _), v in self.first.items() if c > i]
            earlier_last = [(v, float(option.capacity)) for (c, _), v in self.last.items() if c < i]
            if middle and later_first:
                self.programme.require(f"order_first[{self.names[i]}]", total(middle + later_first) <= option.capacity)
            if middle and earlier_last:
                self.programme.require(f"order_last[{self.names[i]}]", total(middle + earlier_last) <= option.capacity)
            here_last = [(v, 1.0) for (c, _), v in self.last.items() if c == i]
            behind = [(v, 1.0) for (c, _), v in self.first.items() if c > i]
            if here_last and behind:
                self.programme.require(f"order_ends[{self.names[i]}]", total(here_last + behind) <= 1)

    def _chain(self) -> None:
        for (i, k), z in self.chain.items():
            at_least = [(v, 1.0) for (c, j), v in self.middle.items() if c == i and j >= k]
            bound = total([*at_least, (z, -float(self.order[i].capacity))])
            self.programme.require(f"at_least[{self.names[i]},{k}]", bound <= 0)
            self.programme.require(f"used[{self.names[i]},{k}]", total([*at_least, (z, -1.0)]) >= 0)
            if (i, k + 1) in self.chain:
                self.programme.require(f"chain[{self.names[i]},{k}]", total([(z, 1), (self.chain[i, k + 1], -1)]) >= 0)

    def _memory(self) -> None:
        """In flight at a place = stages from there to the end, at most m; checked for the largest stages of every class."""
        m = self.order[0].microbatches
        if self.order[0].shape.schedule == "gpipe":
            return
        most = float(sum(option.capacity for option in self.order) + 2)
        behind: list[tuple[Variable, float]] = []
        for i in reversed(range(len(self.order))):
            for k in self.sizes["middle", i]:
                held = self.order[i].held("middle", k)
                if held < m:
                    at_least = [(v, 1.0) for (c, j), v in self.middle.items() if c == i and j >= k]
                    load = total([*behind, *at_least, (self.chain[i, k], most)], 1.0)
                    self.programme.require(f"memory[{self.names[i]},{k}]", load <= held + most)
            behind += [(v, 1.0) for (c, _), v in self.middle.items() if c == i]
        for (i, k), v in self.first.items():
            held = self.order[i].held("first", k)
            if held < m:
                self.programme.require(f"memory_first[{self.names[i]},{k}]", total([*behind, (v, most)], 2.0) <= held + most)

    def _step_bounds(self) -> None:
        """The end of the step is not before any stage's own end, nor before the first stage's behind it."""
        config = self.order[0].config
        self._ends()
        tail = [(v, self.order[i].cost("first", k).tail(config)) for (i, k), v in self.first.items()]
        tail.append((self.tied, 1.0))
        there = self._first(lambda cost: cost.begin(0.0, config))
        body = self._first(lambda cost: self.order[0].microbatches * cost.slot)
        body += self._detour("first", self.first) + self._border_behind_first()
        self._bound("first", there + body + tail)
        there += self._entered(self.first, "first", 0)
        back = self._entered(self.first, "first", 1)
        for i, option in enumerate(self.order):
            if self.sizes["middle", i]:
                self._class_bounds(i, option, there, back, tail)
            mine = {(c, k): v for (c, k), v in self.middle.items() if c == i}
            there += self._entered(mine, "middle", 0)
            back += self._entered(mine, "middle", 1)
        m = self.order[0].microbatches
        ending = [(v, m * self.order[i].cost("last", k).slot) for (i, k), v in self.last.items()]
        ending += self._detour("last", self.last) + self._border_before_last()
        own = [(v, self.order[i].cost("last", k).tail(config)) for (i, k), v in self.last.items()]
        self._bound("last", [*there, *ending, *own, (self.tied, 1.0)])
        self._bound("last_back", there + ending + back + _negative(self._own_messages(self.last)) + tail)

    def _ends(self) -> None:
        """What depends on the classes of both end stages: the tied embedding's sum, and whether the pipeline crosses clusters."""
        for a, first in enumerate(self.order):
            for b, last in enumerate(self.order):
                both = [v for (c, _), v in self.first.items() if c == a] + [v for (c, _), v in self.last.items() if c == b]
                seconds = self.workshop.tied(first.cluster, last.cluster, first.shape)
                if a <= b and seconds > 0:
                    big = seconds if math.isfinite(seconds) else 1e6
                    self.programme.require(f"tied[{a},{b}]", total([(self.tied, 1.0), *((v, -big) for v in both)], big) >= 0)
                if a < b:
                    self.programme.require(f"crosses[{a},{b}]", total([(self.crosses, 1.0), *((v, -1.0) for v in both)], 1) >= 0)

    def _detour(
        self, name: str, ends: dict[tuple[int, int], Variable], messages: float = 1.0
    ) -> list[tuple[Variable, float]]:
        """What messages take longer on a class because its pipeline crosses clusters; `ends` tell whether a stage stands there."""
        terms: list[tuple[Variable, float]] = []
        for i, option in enumerate(self.order):
            here = [(v, -1.0) for (c, _), v in ends.items() if c == i]
            if here and option.waits and option.detour > 0:
                both = self.programme.real(f"detour[{name},{self.names[i]}]")
                meet = total([(both, 1.0), (self.crosses, -1.0), *here], 1)
                self.programme.require(f"detour_{name}[{self.names[i]}]", meet >= 0)
                terms.append((both, messages * option.microbatches * option.detour))
        return terms

    def _border(self, i: int, ahead: bool) -> float:
        """m times what a message over the border behind (or before) class i takes longer than `_detour` counts already."""
        option = self.order[i]
        beyond = self.order[i + 1 :] if ahead else self.order[:i]
        over = min((self.workshop.message(option.cluster, o.cluster, option.shape) for o in beyond), default=0.0)
        more = over - option.message - option.detour if option.waits else 0.0
        return option.microbatches * min(max(more, 0.0), 1e6)

    def _goes_on(self, i: int) -> list[tuple[Variable, float]]:
        """-1 where the pipeline goes on behind class i."""
        return [(v, -1.0) for (c, _), v in self.last.items() if c > i]

    def _border_term(self, name: str, price: float, needs: list[tuple[Variable, float]], slack: float) -> list[tuple[Variable, float]]:
        """`price` where the needs (at coefficient -1) exceed `slack`: a real number pushed up by its constraint."""
        if price <= 0 or not needs:
            return []
        here = self.programme.real(name)
        self.programme.require(f"at_{name}", total([(here, 1.0), *needs], slack) >= 0)
        return [(here, price)]

    def _border_behind_first(self) -> list[tuple[Variable, float]]:
        """The first stage sends over the border where its class has no other stage and the pipeline goes on."""
        terms = []
        for a in range(len(self.order)):
            here = [(v, -1.0) for (c, _), v in self.first.items() if c == a]
            others = [(v, 1.0) for (c, _), v in self.middle.items() if c == a]
            if here:
                needs = [*here, *self._goes_on(a), *others]
                terms += self._border_term(f"border_first[{self.names[a]}]", self._border(a, True), needs, 1.0)
        return terms

    def _border_before_last(self) -> list[tuple[Variable, float]]:
        """The last stage sends gradients over the border where its class has no other stage."""
        terms = []
        for b in range(len(self.order)):
            here = [(v, -1.0) for (c, _), v in self.last.items() if c == b]
            others = [(v, 1.0) for group in (self.first, self.middle) for (c, _), v in group.items() if c == b]
            if here:
                terms += self._border_term(f"border_last[{self.names[b]}]", self._border(b, False), [*here, *others], 0.0)
        return terms

    def _border_behind_middle(self, i: int) -> list[tuple[Variable, float]]:
        """The largest middle stage of a class sends over the border where the pipeline goes on."""
        needs = [(self.chain[i, self.sizes["middle", i][0]], -1.0), *self._goes_on(i)]
        return self._border_term(f"border[{self.names[i]}]", self._border(i, True), needs, 1.0) if self._goes_on(i) else []

    def _class_bounds(
        self,
        i: int,
        option: ClassOption,
        there: list[tuple[Variable, float]],
        back: list[tuple[Variable, float]],
        tail: list[tuple[Variable, float]],
    ) -> None:
        """Bounds of the largest middle stage of a class, which stands last of its class; its values follow the chain."""
        m, config = option.microbatches, option.config
        cost = functools.partial(option.cost, "middle")
        mine = {(c, k): v for (c, k), v in self.middle.items() if c == i}
        before, behind = self._entered(mine, "middle", 0), self._entered(mine, "middle", 1)
        body = self._largest(i, lambda k: m * cost(k).slot - option.entry("middle", k)[0] - option.message)
        body += self._detour(f"middle[{self.names[i]}]", {(i, k): self.chain[i, k] for k in self.sizes["middle", i][:1]}, 2.0)
        body += self._border_behind_middle(i)
        own = self._largest(i, lambda k: cost(k).tail(config))
        self._bound(f"middle[{self.names[i]}]", there + before + body + own)
        message = option.message if option.waits else 0.0
        undo = self._largest(i, lambda k: -option.entry("middle", k)[1] - option.message - message)
        self._bound(f"middle_back[{self.names[i]}]", there + before + body + back + behind + undo + tail)
        gathered = self._largest(i, lambda k: cost(k).begin(0.0, config) + m * cost(k).slot + cost(k).tail(config))
        self._bound(f"gather[{self.names[i]}]", gathered)

    def _largest(self, i: int, value: Callable[[int], float]) -> list[tuple[Variable, float]]:
        """A value of the largest middle stage of a class, as increments along the chain; 0 where the class has none."""
        terms, before = [], 0.0
        for k in self.sizes["middle", i]:
            now = value(k)
            terms.append((self.chain[i, k], now - before))
            before = now
        return terms

    def _first(self, value: Callable[[StageCost], float]) -> list[tuple[Variable, float]]:
        return [(v, value(self.order[i].cost("first", k))) for (i, k), v in self.first.items()]

    def _entered(
        self, stages: dict[tuple[int, int], Variable], role: str, direction: int
    ) -> list[tuple[Variable, float]]:
        """What the first (or last) microbatch takes through stages and the messages behind them."""
        return [(v, self.order[i].entry(role, k)[direction] + self.order[i].message) for (i, k), v in stages.items()]

    def _own_messages(self, ends: dict[tuple[int, int], Variable]) -> list[tuple[Variable, float]]:
        return [(v, self.order[i].message if self.order[i].waits else 0.0) for (i, _), v in ends.items()]

    def _bound(self, name: str, terms: list[tuple[Variable, float]]) -> None:
        load: Expression = total([(self.step, 1.0), *_negative(terms)])
        self.programme.require(f"step_{name}", load >= 0)

    def stages(self) -> tuple[tuple[str, int], ...]:
        """The solution as stages in pipeline order, small ones first within a class."""
        found = [(self.names[i], k) for (i, k), v in self.first.items() if count(v)]
        for i in range(len(self.order)):
            for k in self.sizes["middle", i]:
                found += [(self.names[i], k)] * count(self.middle[i, k])
        return (*found, *((self.names[i], k) for (i, k), v in self.last.items() if count(v)))


def _negative(terms: list[tuple[Variable, float]]) -> list[tuple[Variable, float]]:
    return [(variable, -value) for variable, value in terms]

