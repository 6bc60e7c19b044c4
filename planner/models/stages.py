"""The stage model: which class of machines runs how many stages, of how many layers each.

Machines of one cluster are alike and form a class; the number of variables depends on classes and layers, never on devices.
For one shape (all degrees but pp) and one order of the classes along the pipeline:

Sets        c in classes, in pipeline order; k = 1 .. K[c] layers
Data        m microbatches; slot[c,k], forward[c,k], backward[c,k], tail[c,k] seconds of a stage; message[c] seconds between
            stages; capacity[c] stages; held[c,k] microbatches whose activations fit beside k layers; tied[a,b] seconds of the
            tied embedding's sum between end stages on a and b
Variables   first[c,k], last[c,k] binary      the end stages (embedding and head make them costlier)
            border[c,k] binary                the stage that sends over the border to the next class
            n[c,k] integer                    other middle stages
            z[c,k] binary, falling in k       some middle stage of c has at least k layers
            step >= 0
Minimise    step
Subject to
  one_first, one_last     sum first = 1, sum last = 1
  layers                  sum k (first + n + border + last) = layers of the model
  capacity[c]             sum_k (first + n + border + last)[c,k] <= capacity[c]
  order_*[c]              no stage stands before the class of the first stage, or behind that of the last
  border[c], ends_*[c]    a class ends in its border stage where the pipeline goes on, unless the first stage is alone there
  chain[c,k]              z[c,k] >= z[c,k+1];   at_least[c,k]: sum_{j >= k} n[c,j] <= capacity[c] z[c,k]
  memory[c,k]             stages of c with at least k layers, all stages behind c and the last one <= held[c,k], where z[c,k]
                          (1F1B holds one microbatch for each stage from here to the end; larger stages stand further back)
  through[c]              step >= m x the messages both ways of a node that they cross on both sides, where c has so many stages
  step bounds             for the first stage, the largest middle stage of each class and the last stage: forwards of the
                          stages before + m slot + its own tail, and + m slot + backwards of the stages before + first's tail

Where the schedule splits the backward, the stages before wait for B only and every W may lie behind the last B: "backwards" are
then B's, and the second form leaves the stage's W's out. Memory counts what waits for B.

Each step bound is a statement about every 1F1B pipeline, so the optimum is a lower bound on the step time, on an idle network,
of all plans of this shape whose classes stand in this order and whose middle stages grow along the pipeline within a class
(larger stages further back need less memory, and wait less for those behind them). Other orders are not searched, so
`certified` takes plans from the model and no bound.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise, permutations

from planner.costs.context import PlanningContext
from planner.costs.node_classes import NodeClass
from planner.models.milp import Expression, Programme, Variable, count, total
from sim.analytic.stage_costs import StageCost

EVERY_ORDER = 3
"""Of so many classes every order is looked at."""
NEVER = 1e6
"""Seconds that stand for a message that nothing can carry."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """Stages in pipeline order as (cluster, layers); what the stage model promises, and the bound it proves."""

    stages: tuple[tuple[str, int], ...]
    seconds: float
    bound: float
    proved: bool
    solver: str


def orders(context: PlanningContext, classes: list[NodeClass]) -> list[tuple[NodeClass, ...]]:
    """Orders of the classes along the pipeline: all of up to three, else the cheapest path over the borders, both ways."""
    if len(classes) <= EVERY_ORDER:
        return list(permutations(classes))
    shape = classes[0].shape

    def price(order: tuple[NodeClass, ...]) -> float:
        return sum(context.message(a.cluster, b.cluster, shape) for a, b in pairwise(order))

    best = min(permutations(classes), key=price) if len(classes) <= 7 else _greedy_order(classes, price)
    return [best, best[::-1]]


def _greedy_order(classes: list[NodeClass], price: Callable[[tuple[NodeClass, ...]], float]) -> tuple[NodeClass, ...]:
    """Insert class after class where it lengthens the path least."""
    path: tuple[NodeClass, ...] = ()
    for option in classes:
        path = min(((*path[:i], option, *path[i:]) for i in range(len(path) + 1)), key=price)
    return path


def solve(
    context: PlanningContext, order: tuple[NodeClass, ...], pp: int | None, cutoff: float, time_limit: float
) -> Assignment | None:
    """The best assignment of layers to a pipeline of two or more places in this order of classes, or None."""
    model = _StageModel(context, order, pp, cutoff)
    if not model.possible:
        return None
    context.variables += len(model.first) + len(model.last) + len(model.border) + 2 * len(model.middle)
    solution = model.programme.solve(time_limit)
    if solution is None:
        return None
    seconds, bound = solution.objective * model.unit, solution.bound * model.unit
    return Assignment(model.stages(), seconds, bound, solution.proved, solution.solver)


class _StageModel:
    """The programme of the module docstring, in its order."""

    def __init__(self, context: PlanningContext, order: tuple[NodeClass, ...], pp: int | None, cutoff: float):
        self.context, self.order, self.pp = context, order, pp
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
        self.border = {(i, k): p.binary(f"border[{self.names[i]},{k}]") for i, k in self.middle if i + 1 < len(self.order)}
        self.chain = {(i, k): p.binary(f"z[{self.names[i]},{k}]") for i, k in self.middle}
        self.unit = self.order[0].microbatches * min(option.layer_seconds for option in self.order)
        self.step, self.tied, self.crosses = p.real("step", up=cutoff / self.unit), p.real("tied"), p.real("crosses")
        p.minimise(total([(self.step, 1.0)]))
        self._shape()
        self._order()
        self._borders()
        self._chain()
        self._memory()
        self._ends()
        self._through()
        self._step_bounds()

    def _shape(self) -> None:
        p, everything = self.programme, self._stages()
        p.require("one_first", total((v, 1) for v in self.first.values()) == 1)
        p.require("one_last", total((v, 1) for v in self.last.values()) == 1)
        layers = self.order[0].workload.model.layers
        p.require("layers", total((v, k) for group in everything for (_, k), v in group.items()) == layers)
        for i, option in enumerate(self.order):
            used = total((v, 1) for group in everything for (c, _), v in group.items() if c == i)
            p.require(f"capacity[{self.names[i]}]", used <= option.capacity)
        if self.pp is not None:
            p.require("pp", total((v, 1) for group in (self.middle, self.border) for v in group.values()) == self.pp - 2)

    def _order(self) -> None:
        """Nothing stands before the first stage's class or behind the last stage's class."""
        for i, option in enumerate(self.order):
            middle = [(v, 1.0) for group in (self.middle, self.border) for (c, _), v in group.items() if c == i]
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

    def _borders(self) -> None:
        """A class behind which the pipeline goes on ends in a stage at its border, unless the first stage is alone there."""
        for i, option in enumerate(self.order):
            here = [(v, 1.0) for (c, _), v in self.border.items() if c == i]
            if here:
                self.programme.require(f"border[{self.names[i]}]", total([*here, *self._goes_on(i)]) <= 0)
                middle = [(v, 1.0) for (c, _), v in self.middle.items() if c == i]
                room = float(option.capacity)
                needed = [(v, -room * factor) for v, factor in [*here, *self._goes_on(i)]]
                self.programme.require(f"ends_at_border[{self.names[i]}]", total([*middle, *needed]) <= room)

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
            for k in [k for c, k in self.border if c == i]:
                held = self.order[i].held("middle", k)
                if held < m:
                    load = total([*behind, (self.border[i, k], most)], 2.0)
                    self.programme.require(f"memory_border[{self.names[i]},{k}]", load <= held + most)
            behind += [(v, 1.0) for (c, _), v in self.border.items() if c == i]
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

    def _through(self) -> None:
        """A node that messages cross on both sides carries activations one way and gradients the other, out of one NIC."""
        m, vpp = self.order[0].microbatches, self.order[0].shape.vpp
        for i, option in enumerate(self.order):
            ways, room = len(option.costs), float(option.capacity)
            used = [(v, 1.0) for group in self._stages() for (c, _), v in group.items() if c == i]
            for name, seconds, stages, crossing in (
                ("inside", option.through, 2 * ways, []),
                ("beside", option.through_crossing, ways, [(self.crosses, room)]),
            ):
                if seconds > 0 and room > stages and used:
                    here = self.programme.binary(f"through_{name}[{self.names[i]}]")
                    load = total([*used, (here, -room), *crossing], 0.0)
                    self.programme.require(f"at_through_{name}[{self.names[i]}]", load <= stages + (room if crossing else 0.0))
                    self._bound(f"through_{name}[{self.names[i]}]", [(here, m * vpp * seconds)])

    def _stages(self) -> tuple[dict[tuple[int, int], Variable], ...]:
        return self.first, self.middle, self.border, self.last

    def _step_bounds(self) -> None:
        """The end of the step is not before any stage's own end, nor before the first stage's behind it."""
        config = self.order[0].config
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
            there, back = there + self._entered(mine, "middle", 0), back + self._entered(mine, "middle", 1)
            at_border = {(c, k): v for (c, k), v in self.border.items() if c == i}
            if at_border:
                self._border_bounds(i, at_border, there, back, tail)
            over = [(v, self._border(i, True) / option.microbatches) for v in at_border.values()]
            there += self._entered(at_border, "middle", 0) + over
            back += self._entered(at_border, "middle", 1) + over
        m = self.order[0].microbatches
        ending = [(v, m * self.order[i].cost("last", k).slot) for (i, k), v in self.last.items()]
        ending += self._detour("last", self.last) + self._border_before_last()
        own = [(v, self.order[i].cost("last", k).tail(config)) for (i, k), v in self.last.items()]
        self._bound("last", [*there, *ending, *own, (self.tied, 1.0)])
        self._bound("last_back", there + ending + back + _negative(self._own_last(self.last, "last")) + tail)

    def _ends(self) -> None:
        """What depends on the classes of both end stages: the tied embedding's sum, and whether clusters are crossed."""
        for a, first in enumerate(self.order):
            for b, last in enumerate(self.order):
                both = [v for (c, _), v in self.first.items() if c == a] + [v for (c, _), v in self.last.items() if c == b]
                seconds = self.context.least_tied(first.cluster, last.cluster, first.shape, last.capacity)
                if a <= b and seconds > 0:
                    big = min(seconds, NEVER) / self.unit
                    self.programme.require(f"tied[{a},{b}]", total([(self.tied, 1.0), *((v, -big) for v in both)], big) >= 0)
                if a < b:
                    self.programme.require(
                        f"crosses[{a},{b}]", total([(self.crosses, 1.0), *((v, -1.0) for v in both)], 1) >= 0
                    )

    def _detour(self, name: str, ends: dict[tuple[int, int], Variable], messages: float = 1.0) -> list[tuple[Variable, float]]:
        """What messages take longer on a class because its pipeline crosses clusters; `ends` tell where a stage stands."""
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
        over = min((self.context.message(option.cluster, o.cluster, option.shape) for o in beyond), default=0.0)
        more = over - option.message - option.detour if option.waits else 0.0
        return option.microbatches * min(max(more, 0.0), NEVER)

    def _goes_on(self, i: int) -> list[tuple[Variable, float]]:
        """-1 where the pipeline goes on behind class i."""
        return [(v, -1.0) for (c, _), v in self.last.items() if c > i]

    def _border_term(
        self, name: str, price: float, needs: list[tuple[Variable, float]], slack: float
    ) -> list[tuple[Variable, float]]:
        """`price` where the needs (at coefficient -1) exceed `slack`: a real number pushed up by its constraint."""
        if price <= 0 or not needs:
            return []
        here = self.programme.real(name)
        self.programme.require(f"at_{name}", total([(here, 1.0), *needs], slack) >= 0)
        return [(here, price)]

    def _border_behind_first(self) -> list[tuple[Variable, float]]:
        """The first stage sends over the border where the pipeline goes on and no other stage stands at it."""
        terms = []
        for a in range(len(self.order)):
            here = [(v, -1.0) for (c, _), v in self.first.items() if c == a]
            others = [(v, 1.0) for (c, _), v in self.border.items() if c == a]
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

    def _border_bounds(
        self,
        i: int,
        at_border: dict[tuple[int, int], Variable],
        there: list[tuple[Variable, float]],
        back: list[tuple[Variable, float]],
        tail: list[tuple[Variable, float]],
    ) -> None:
        """Bounds of the stage at the border behind class i, whose messages cross it."""
        option = self.order[i]
        m, cost = option.microbatches, functools.partial(option.cost, "middle")
        body = [(v, m * cost(k).slot + self._border(i, True)) for (_, k), v in at_border.items()]
        body += self._detour(f"border[{self.names[i]}]", at_border, 2.0)
        own = [(v, cost(k).tail(option.config)) for (_, k), v in at_border.items()]
        self._bound(f"border[{self.names[i]}]", there + body + own)
        self._bound(
            f"border_back[{self.names[i]}]", there + body + back + _negative(self._own_last(at_border, "middle")) + tail
        )

    def _class_bounds(
        self,
        i: int,
        option: NodeClass,
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
        own = self._largest(i, lambda k: cost(k).tail(config))
        self._bound(f"middle[{self.names[i]}]", there + before + body + own)
        message = option.message if option.waits else 0.0
        undo = self._largest(i, lambda k: -option.entry("middle", k)[1] - option.message - message - m * cost(k).weight)
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

    def _entered(self, stages: dict[tuple[int, int], Variable], role: str, direction: int) -> list[tuple[Variable, float]]:
        """What the first (or last) microbatch takes through stages and the messages behind them."""
        return [(v, self.order[i].entry(role, k)[direction] + self.order[i].message) for (i, k), v in stages.items()]

    def _own_last(self, ends: dict[tuple[int, int], Variable], role: str) -> list[tuple[Variable, float]]:
        """What of a stage's own slots may lie behind its last B: its message, and all its weight gradients."""
        terms = []
        for (i, k), v in ends.items():
            option = self.order[i]
            weights = option.microbatches * option.cost(role, k).weight
            terms.append((v, weights + (option.message if option.waits else 0.0)))
        return terms

    def _bound(self, name: str, terms: list[tuple[Variable, float]]) -> None:
        """step >= the terms, which are in seconds but for `tied`; the programme reckons in units that suit the solver."""
        scaled = [(v, -value if v is self.tied else -value / self.unit) for v, value in terms]
        load: Expression = total([(self.step, 1.0), *scaled])
        self.programme.require(f"step_{name}", load >= 0)

    def stages(self) -> tuple[tuple[str, int], ...]:
        """The solution as stages in pipeline order, small ones first within a class."""
        found = [(self.names[i], k) for (i, k), v in self.first.items() if count(v)]
        for i in range(len(self.order)):
            for k in self.sizes["middle", i]:
                found += [(self.names[i], k)] * count(self.middle[i, k])
            found += [(self.names[i], k) for (c, k), v in self.border.items() if c == i and count(v)]
        return (*found, *((self.names[i], k) for (i, k), v in self.last.items() if count(v)))


def _negative(terms: list[tuple[Variable, float]]) -> list[tuple[Variable, float]]:
    return [(variable, -value) for variable, value in terms]
