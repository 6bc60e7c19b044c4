"""Faster plans of a variant, without a proof: local search from estimated pipelines, then the stage programme.

The stage programme (`planner.models.stage_programme`) keeps the stages of a class in the order of their sizes, so its bound
does not hold for all pipelines. Only its solutions are used: they are simulated.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from planner.costs.node_classes import NodeClass, node_classes
from planner.models.class_orders import EVERY_ORDER, orders
from planner.models.solver import NothingFound
from planner.models.stage_programme import solve
from planner.search.candidates import estimates
from planner.search.incumbent import Incumbent
from planner.search.local_search import improved
from planner.space import lengths
from planner.space.shape import Shape


@dataclass(slots=True)
class Improvement:
    """Searches variants for faster plans. `solvers` are the names of the solvers that solved a programme, in order of use."""

    incumbent: Incumbent
    solvers: dict[str, None] = field(default_factory=dict)
    _programmes_since: int = field(default=0, init=False)
    """Programmes solved since the last solution that was the fastest plan."""

    _longest: float = field(default=0.0, init=False)
    """Seconds that the slowest programme took to build and solve; near the time limit none is begun that would exceed it."""

    def improve(self, shape: Shape) -> None:
        """Search a variant for a faster plan."""
        context, budgets = self.incumbent.context, self.incumbent.budgets
        classes = node_classes(context, shape)
        promising = estimates(context, shape, classes, budgets.improved_estimates, near=True)
        self.incumbent.add(improved([estimate.evaluated() for estimate in promising], 1))
        if not shape.divides(context.request.workload) or len(classes) > EVERY_ORDER:
            return  # few programmes are solved, and equal replicas come first; the stage search covers many classes
        for order in orders(context, classes):
            if self._programmes_since >= budgets.programmes or not self.incumbent.limit.leaves(self._longest):
                return
            self._solve(shape, order)

    def _solve(self, shape: Shape, order: tuple[NodeClass, ...]) -> None:
        """Solve the stage programme of one order of classes, and simulate the pipeline that it finds."""
        incumbent = self.incumbent
        self._programmes_since += 1
        nodes, limit = incumbent.budgets.programme_nodes, incumbent.limit
        pp = lengths.shortest(incumbent.request), lengths.longest(incumbent.request, shape)
        before = limit.seconds_left
        try:
            with incumbent.context.effort.spent("programmes solved", 1):
                assignment = solve(incumbent.context, order, pp, incumbent.cutoff, nodes, limit)
        except NothingFound:
            return
        finally:
            self._longest = max(self._longest, before - limit.seconds_left)
        if assignment is not None:
            self.solvers[assignment.solver] = None
            if incumbent.offer(shape, assignment.stages):
                self._programmes_since = 0
