"""Sets, variables and linear terms of the stage programme (`planner.models.stage_programme`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from planner.costs.node_classes import NodeClass
from planner.models.solver import Expression, Programme, Variable, count, total
from sim.analytic.stage_costs import StageCost

Sizes: TypeAlias = dict[tuple[str, int], list[int]]
"""(role, class) -> numbers of layers that a stage of the class may have in the role."""
Stages: TypeAlias = dict[tuple[int, int], Variable]
"""(class, layers) -> variable."""
Terms: TypeAlias = list[tuple[Variable, float]]
"""(variable, coefficient) of a linear expression."""


def stage_sizes(order: tuple[NodeClass, ...], cutoff: float) -> Sizes:
    """Sizes of stages that fit in memory and whose cycles alone do not exceed `cutoff` seconds."""
    return {(role, i): option.layers(role, cutoff) for i, option in enumerate(order) for role in ("first", "middle", "last")}


class StageVariables:
    """Variables of the stage programme for one order of classes, and linear terms of them in seconds.

    `unit`: seconds that one unit of the variables `step` and `tied` stands for. The tolerances of solvers are absolute (1e-6),
    so the unit is m times the seconds of the fastest layer; then `step` is about the number of layers of a stage."""

    def __init__(self, order: tuple[NodeClass, ...], sizes: Sizes, cutoff: float):
        self.order, self.sizes, self.programme = order, sizes, Programme("stages")
        self.names = [option.cluster.name for option in order]
        self.m = order[0].microbatches
        p, names, classes = self.programme, self.names, range(len(order))
        self.first: Stages = {(i, k): p.binary(f"first[{names[i]},{k}]") for i in classes for k in sizes["first", i]}
        self.last: Stages = {(i, k): p.binary(f"last[{names[i]},{k}]") for i in classes for k in sizes["last", i]}
        self.middle: Stages = {
            (i, k): p.integer(f"n[{names[i]},{k}]", 0, order[i].max_stages) for i in classes for k in sizes["middle", i]
        }
        self.border: Stages = {(i, k): p.binary(f"border[{names[i]},{k}]") for i, k in self.middle if i + 1 < len(order)}
        self.chain: Stages = {(i, k): p.binary(f"z[{names[i]},{k}]") for i, k in self.middle}
        self.unit = self.m * min(option.layer_seconds for option in order)
        self.step, self.tied, self.crosses = p.real("step", up=cutoff / self.unit), p.real("tied"), p.real("crosses")
        p.minimise(total([(self.step, 1.0)]))

    def groups(self) -> tuple[Stages, ...]:
        """Variables of all stages: first, other middle, border and last ones."""
        return self.first, self.middle, self.border, self.last

    def continues(self, i: int) -> Terms:
        """A term of value -1 if the pipeline continues after class i."""
        return [(v, -1.0) for (c, _), v in self.last.items() if c > i]

    def of_first(self, value: Callable[[StageCost], float]) -> Terms:
        """A value of the costs of the first stage."""
        return [(v, value(self.order[i].cost("first", k))) for (i, k), v in self.first.items()]

    def entered(self, stages: Stages, role: str, direction: int) -> Terms:
        """Seconds that the first (direction 0) or last (1) microbatch takes through stages and the messages behind them."""
        return [(v, self.order[i].entry(role, k)[direction] + self.order[i].message) for (i, k), v in stages.items()]

    def of_largest(self, i: int, value: Callable[[int], float]) -> Terms:
        """A value of the largest middle stage of a class; 0 where the class has none.

        It is a sum of increments: chain[i, k] is 1 for all k up to the largest stage, and adds value(k) less the value of the
        size before."""
        terms, before = [], 0.0
        for k in self.sizes["middle", i]:
            now = value(k)
            terms.append((self.chain[i, k], now - before))
            before = now
        return terms

    def bound_step(self, name: str, terms: Terms) -> None:
        """Require step >= the terms, which are in seconds, except for `tied`, which is in units already."""
        scaled = [(v, -value if v is self.tied else -value / self.unit) for v, value in terms]
        load: Expression = total([(self.step, 1.0), *scaled])
        self.programme.require(f"step_{name}", load >= 0)

    def solution(self) -> tuple[tuple[str, int], ...]:
        """The solved (cluster, layers) of the stages in pipeline order; within a class from small to large, the border last."""
        found = [(self.names[i], k) for (i, k), v in self.first.items() if count(v)]
        for i in range(len(self.order)):
            for k in self.sizes["middle", i]:
                found += [(self.names[i], k)] * count(self.middle[i, k])
            found += [(self.names[i], k) for (c, k), v in self.border.items() if c == i and count(v)]
        return (*found, *((self.names[i], k) for (i, k), v in self.last.items() if count(v)))
