"""The proof: best-first branch and bound over families of shapes, which raises a lower bound of the step and finds plans.

A heap holds open nodes, each with a lower bound of the pipelines that it stands for. The node with the least bound is opened,
and its children enter the heap with closer bounds:

    base        a shape under any schedule and ZeRO stage        quick bound (`planner.bounds.relaxation`)
    schedule    under a given schedule and vpp                   deadline test of the family, then a quick bound
    variant     with a given ZeRO stage, too                     deadline test of the family
    OpenVariant the orders of its classes that are left          the least time that the deadline test cannot rule out
                                                                 (bisection), then evaluation of what is left (`exhaust`)

Invariant: the step of every pipeline of the searched space is at least the bound of the open node that stands for it, or one
of the settled bounds; pipelines that another variant dominates (`planner.search.dominance`) count there. A node is settled when
its bound reaches the target or cannot rise, and a pruned family with the target. The search stops when no open node is below
the target, or a budget is used up. The least of the open and settled bounds is the certificate's.
Reference: A. H. Land, A. G. Doig, An Automatic Method of Solving Discrete Programming Problems, Econometrica 28(3), 1960.
"""

from __future__ import annotations

import heapq
import itertools

from planner.bounds.deadline_test import Orders, deadline_bound, deadline_tests
from planner.bounds.relaxation import quick_bound
from planner.costs.node_classes import node_classes
from planner.search.dominance import is_dominated
from planner.search.exhaust import Exhaust, OpenVariant
from planner.search.families import Branching, Family
from planner.search.improvement import Improvement
from planner.search.incumbent import Incumbent
from planner.search.single_stage import single_stage_bounds
from planner.space.shapes import Shape, overlaps


class Proof:
    """Settles the shapes of a request. `settled` holds the final bounds, also while the search is interrupted."""

    def __init__(self, incumbent: Incumbent, improvement: Improvement):
        self.incumbent, self.context = incumbent, incumbent.context
        self.settled: list[float] = []
        self._branching = Branching(incumbent, self.settled)
        self._exhaust = Exhaust(incumbent, improvement, self.settled)
        self._heap: list[tuple[float, int, Shape, Family | OpenVariant]] = []
        self._numbers = itertools.count()

    def run(self, bases: list[Shape]) -> list[float]:
        """Search until no open node is below the target or a budget is used up; return the bounds of the nodes left open."""
        incumbent, budgets = self.incumbent, self.incumbent.budgets
        for base in bases:
            self._push(quick_bound(self.context, base, node_classes(self.context, base), True), base, Family("base"))
        while self._heap and self._heap[0][0] < incumbent.target:
            if incumbent.seconds_left <= 0 or incumbent.unproved >= budgets.unproved_variants:
                break
            bound, _, shape, node = heapq.heappop(self._heap)
            if isinstance(node, OpenVariant):
                self._evaluate(bound, shape, node)
            else:
                self._branch(bound, shape, node)
        incumbent.simulate_pool(budgets.last_tries)
        return [bound for bound, *_ in self._heap]

    def _push(self, bound: float, shape: Shape, node: Family | OpenVariant) -> None:
        """Add an open node; of equal bounds the oldest is opened first."""
        heapq.heappush(self._heap, (bound, next(self._numbers), shape, node))

    def _branch(self, bound: float, shape: Shape, family: Family) -> None:
        """Replace a family by its children, each with a bound of at least the family's."""
        if family.kind == "base":
            for child, orders in self._branching.schedules(shape):
                child_bound = max(bound, quick_bound(self.context, child, node_classes(self.context, child)))
                self._push(child_bound, child, Family("schedule", orders))
        elif family.kind == "schedule":
            for child, orders in self._branching.zero_stages(shape, family.orders):
                self._push(bound, child, Family("variant", orders))
        else:
            reached, variant = self._tested(shape, family.orders, bound)
            if reached < self.incumbent.target:
                self._push(reached, shape, variant)
            else:
                self.settled.append(reached)

    def _tested(self, shape: Shape, among: Orders, bound: float) -> tuple[float, OpenVariant]:
        """(lower bound of a variant's pipelines of two or more stages, the tests of the orders that are left).

        Settles its pipelines of one stage."""
        if is_dominated(self.incumbent, shape):
            return self.incumbent.target, OpenVariant(())
        self.settled += single_stage_bounds(self.incumbent, shape)
        classes, either = node_classes(self.context, shape), len(overlaps(shape)) > 1
        tests = deadline_tests(self.context, classes, self.incumbent.target, either, among)
        return deadline_bound(tests, bound, self.incumbent.target), OpenVariant(tuple(tests))

    def _evaluate(self, bound: float, shape: Shape, variant: OpenVariant) -> None:
        """Raise the bound of a variant by evaluating its pipelines; settle it where it is final or reaches the target."""
        closer, is_final = self._exhaust.closer(shape, variant, bound)
        if is_final or closer >= self.incumbent.target:
            self.settled.append(closer)
        else:
            self._push(closer, shape, variant)
        self.incumbent.report(f"{len(self.settled)} layouts settled")
