"""The proof: best-first branch and bound over families of shapes, which raises a lower bound of the step and finds plans.

A heap holds the open nodes of the search tree, each with a lower bound on the step of the pipelines that it stands for. The
node with the least bound is opened, and its children enter the heap:

    node         stands for                                       its bound
    base         a shape under any schedule, vpp and ZeRO stage   quick bound (`planner.bounds.relaxation`)
    schedule     a shape under any ZeRO stage                     quick bound of that shape
    variant      a shape with its own ZeRO stage                  that of its parent
    OpenVariant  a variant's orders of classes that are left      by bisection with the deadline test; then with that of each
                                                                  number of stages; then by evaluation of the pipelines that
                                                                  are left (`exhaust`)

When a base or a schedule node is opened, deadline tests first prune groups of its children, or some of their orders of classes
(`families`). A pruned group has the target as its bound.

Invariant: the step of every pipeline of the searched space is at least a settled bound or the bound of the open node that
stands for it; for a dominated pipeline (`planner.search.dominance`), this is a bound of the variant that dominates it. A node
is settled when its bound reaches the target or cannot rise. The search stops when no open node is below the target, or a budget
is used up. The certificate takes the least of the open and settled bounds.
Reference: A. H. Land, A. G. Doig, An Automatic Method of Solving Discrete Programming Problems, Econometrica 28(3), 1960.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from planner.bounds.deadline_test import PRECISE, ROUGH, deadline_bound
from planner.bounds.orders import Orders, deadline_tests
from planner.bounds.relaxation import quick_bound
from planner.costs.node_classes import node_classes
from planner.effort import Level, Outcome
from planner.search.dominance import is_dominated
from planner.search.exhaust import Exhaust, OpenVariant
from planner.search.families import Branching, Family
from planner.search.improvement import Improvement
from planner.search.incumbent import Incumbent
from planner.search.listed_again import list_again
from planner.search.more_orders import list_more_orders
from planner.search.simulated_bound import KnownVariant, simulate_known
from planner.search.single_stage import single_stage_bounds
from planner.space.runnable import runs
from planner.space.shape import Shape
from planner.space.shapes import overlaps, searched_schedules


class Proof:
    """Settles the shapes of a request. `settled` holds the final bounds, also while the search is interrupted.

    `least_layout` is the layout with the least bound of all, in words, and `least_shapes` its shape and that of the next one;
    empty where no bound is below the target."""

    def __init__(self, incumbent: Incumbent, improvement: Improvement):
        self.incumbent, self.context = incumbent, incumbent.context
        self.settled: list[float] = []
        self._branching = Branching(incumbent, self.settled)
        self._exhaust = Exhaust(incumbent, improvement, self.settled)
        self._heap: list[tuple[float, int, Shape, Family | OpenVariant]] = []
        self._postponed: list[tuple[float, int, Shape, Family | OpenVariant]] = []
        self._numbers = itertools.count()
        self._least_settled, self._counted, self._least = math.inf, 0, math.inf  # the last of variants, when they were settled
        self._shapes: dict[int, Shape] = {}  # of settled bounds that were below the target, by their index
        self._known: dict[int, KnownVariant] = {}  # by the index of their bounds in `settled`
        self._opened: dict[Shape, tuple[float, OpenVariant]] = {}  # the variants that were evaluated, with their bounds
        self._evaluated: dict[int, tuple[Shape, OpenVariant]] = {}  # those with bounds below the target, by the same index
        self.least_layout = ""
        self.least_shapes: list[Shape] = []

    def run(self, bases: list[Shape], once_bounded: Callable[[], None] | None = None) -> list[float]:
        """Search until no open node is below the target or a budget is used up; return the bounds of the nodes left open.

        once_bounded: is called then, with `least_shapes` known, before the last candidates are simulated, which may take long.

        Variants whose dp does not divide the batch, and then those whose tp differs between device types, are bounded with the
        others, but evaluated after them: the bounds of the former are weaker, because their replicas need not keep step, and
        there are many of the latter."""
        incumbent, budgets = self.incumbent, self.incumbent.budgets
        for base in bases:
            known = incumbent.limit.is_up()  # all quick bounds of many experts take seconds
            bound = incumbent.work_bound if known else quick_bound(self.context, base, node_classes(self.context, base), True)
            self._push(bound, base, Family("base"))
        self._search(0)
        for turn, variants in ((1, budgets.unequal_variants), (2, budgets.unlike_variants)):
            if self._postponed:
                for entry in self._postponed:
                    heapq.heappush(self._heap, entry)
                self._postponed = []
                incumbent.unproved = max(budgets.unproved_variants - variants, 0)
                self._search(turn)
        self._raise_bound()
        for bound, _, _, node in self._heap:
            _count_left(incumbent, bound, node)
        if once_bounded is not None:
            self._find_least_layout()
            once_bounded()
        incumbent.simulate_pool(budgets.last_tries)
        if incumbent.lower_bound < incumbent.target:
            incumbent.simulate_pool(budgets.doubtful_tries, doubtful=True)
            incumbent.simulate_pool(budgets.last_tries)
            self._search_best()
        list_again(incumbent, self._exhaust, self.settled, self._evaluated, self._known, self._recount)
        self._find_least_layout()
        return [bound for bound, *_ in self._heap]

    def raise_by_simulation(self) -> None:
        """After `run`: raise settled bounds by simulation (`planner.search.simulated_bound`), where they are the least."""
        if self.incumbent.lower_bound >= self.incumbent.target:
            return
        unlisted = {i: one for i, one in self._evaluated.items() if one[1].has_more_orders(self.settled[i])}
        list_more_orders(self.incumbent, self._exhaust, self.settled, unlisted, self._known, self._recount)
        fixed = [bound for index, bound in enumerate(self.settled) if index not in self._known]
        for variant in self._known.values():
            variant.refill(self.incumbent.seen)
        others = min([*fixed, *(bound for bound, *_ in self._heap)], default=math.inf)
        simulate_known(self.incumbent, self._exhaust, self._known.values(), others)
        for index, variant in self._known.items():
            self.settled[index] = min(max(variant.bound, self.settled[index]), self.incumbent.target)
        self._recount()
        self._find_least_layout()

    def _recount(self) -> None:
        """Take the bound anew where settled ones were raised."""
        self._least_settled, self._counted = math.inf, 0
        self._raise_bound()

    def _search(self, turn: int) -> None:
        """Open nodes until none is below the target or a budget is used up; variants of later turns are postponed."""
        incumbent, budgets = self.incumbent, self.incumbent.budgets
        while self._heap and self._heap[0][0] < incumbent.target:
            if incumbent.unproved >= budgets.unproved_variants or incumbent.limit.is_up():
                break
            self._raise_bound()
            bound, number, shape, node = heapq.heappop(self._heap)
            if isinstance(node, OpenVariant) and self._turn(shape) > turn:
                self._postponed.append((bound, number, shape, node))
            elif isinstance(node, OpenVariant):
                self._evaluate(bound, shape, node)
            else:
                self._branch(bound, shape, node)
            incumbent.report(f"{len(self.settled)} layouts settled")

    def _search_best(self) -> None:
        """Evaluate the variant of the best plan, as long as that is another one than before: where messages share links, its
        bound may be so high above the others that the search ends before it, or lists few of its pipelines. None of a schedule
        that is not searched: zb-latency lists the warm-ups of one pipeline (`planner.search.latency`)."""
        incumbent, searched = self.incumbent, set[Shape]()
        known = dict(searched_schedules(incumbent.request))
        while incumbent.best_shape is not None and not incumbent.limit.is_up():
            shape = replace(incumbent.best_shape, overlap_param_gather=True)
            if shape in searched or shape.schedule not in known:
                return
            searched.add(shape)
            bound, variant = self._opened.get(shape) or self._tested(shape, None, 0.0)
            if variant.tests and bound < incumbent.target:
                self._exhaust.closer(shape, variant, bound, only=True)
                incumbent.simulate_pool(incumbent.budgets.last_tries)

    def _turn(self, shape: Shape) -> int:
        """When variants of this kind are evaluated (`run`)."""
        return 2 if shape.cluster_tp else int(not shape.divides(self.incumbent.request.workload))

    def _find_least_layout(self) -> None:
        """Set `least_layout`: that of the first open node, or of a settled variant with a lower bound."""
        level: Level = "variant"
        every = [(self.settled[i], self._shapes[i]) for i in sorted(self._shapes, key=self.settled.__getitem__)]
        if self._heap and (not every or self._heap[0][0] < every[0][0]):
            bound, _, shape, node = self._heap[0]
            every, level = [(bound, shape), *every], "variant" if isinstance(node, OpenVariant) else node.kind
        self.least_shapes = list(dict.fromkeys(shape for bound, shape in every if bound < self.incumbent.target))[:2]
        self.least_layout = in_words(self.least_shapes[0], level) if self.least_shapes else ""

    def _settle(self, bounds: Sequence[float], shape: Shape) -> None:
        """Add final bounds of a variant."""
        below = (i for i, bound in enumerate(bounds, len(self.settled)) if bound < self.incumbent.target)
        self._shapes |= dict.fromkeys(below, shape)
        self.settled += bounds
        self._least = min([self._least, *bounds])

    def _raise_bound(self) -> None:
        """Give the incumbent the bound that is proved: the least of all open and settled ones.

        It holds while the first open node is replaced by its children, whose bounds are not below the node's."""
        self._least_settled = min([self._least_settled, *self.settled[self._counted :]])
        self._counted = len(self.settled)
        least_open = min([math.inf, *(entry[0] for entry in (*self._postponed, *self._heap[:1]))])
        self.incumbent.lower_bound = min(self._least_settled, least_open)

    def _push(self, bound: float, shape: Shape, node: Family | OpenVariant) -> None:
        """Add an open node; of equal bounds the oldest is opened first."""
        heapq.heappush(self._heap, (bound, next(self._numbers), shape, node))

    def _branch(self, bound: float, shape: Shape, family: Family) -> None:
        """Replace a family by its children, each with a bound of at least the family's."""
        layouts = self.context.effort.layouts
        if family.kind != "variant":
            layouts[family.kind, "opened"] += 1
        if family.kind == "base":
            for child, orders in self._branching.schedules(shape):
                child_bound = max(bound, quick_bound(self.context, child, node_classes(self.context, child)))
                self._push(child_bound, child, Family("schedule", orders))
        elif family.kind == "schedule":
            for child, orders in self._branching.zero_stages(shape, family.orders):
                self._push(bound, child, Family("variant", orders))
        elif is_dominated(self.incumbent, shape):
            self.settled.append(self.incumbent.target)
            layouts["variant", "dominated"] += 1
        else:
            reached, variant = self._tested(shape, family.orders, bound)
            if reached < self.incumbent.target:
                self._push(reached, shape, variant)
            else:
                self._settle([reached], shape)
                layouts["variant", "deadline test"] += 1

    def _tested(self, shape: Shape, among: Orders, bound: float) -> tuple[float, OpenVariant]:
        """(lower bound on a variant's pipelines of two or more stages, its deadline tests, one for each order that is left).

        The bound is rough where a settled one is not higher. Settles the bounds of its pipelines of one stage."""
        self._settle(single_stage_bounds(self.incumbent, shape), shape)
        classes, either = node_classes(self.context, shape), len(overlaps(shape)) > 1
        several = any(runs(self.incumbent.request, one, 2) for one in overlaps(shape))
        tests = deadline_tests(self.context, classes, self.incumbent.target, either, among) if several else []
        return deadline_bound(tests, bound, self.incumbent.target, self._precise(bound)), OpenVariant(tuple(tests))

    def _precise(self, bound: float) -> float:
        """Relative width of a variant's bound that is not below `bound`: rough where a settled one is not higher."""
        return PRECISE if bound < self._least else ROUGH

    def _evaluate(self, bound: float, shape: Shape, variant: OpenVariant) -> None:
        """Raise the bound of a variant by evaluating its pipelines; settle it where it is final or reaches the target."""
        closer, is_final = bound, False
        if not variant.counted:
            closer = variant.by_counts(bound, self.incumbent.target, self._precise(bound))
        if closer <= bound:
            closer, is_final = self._exhaust.closer(shape, variant, bound)
        self._opened[shape] = closer, variant
        if is_final or closer >= self.incumbent.target:
            if is_final and variant.known >= closer and closer < self.incumbent.target:
                self._known[len(self.settled)] = KnownVariant(shape, variant, closer)
            if closer < self.incumbent.target:
                self._evaluated[len(self.settled)] = shape, variant
            self._settle([closer], shape)
            self.context.effort.layouts["variant", "evaluated"] += 1
        else:
            self._push(closer, shape, variant)


def _count_left(incumbent: Incumbent, bound: float, node: Family | OpenVariant) -> None:
    """Count what the bound of an open node says about it when the search ends."""
    level: Level = "variant" if isinstance(node, OpenVariant) else node.kind
    by_bound: Outcome = "deadline test" if isinstance(node, OpenVariant) else "quick bound"
    outcome: Outcome = "left open" if bound < incumbent.target else "no memory" if math.isinf(bound) else by_bound
    incumbent.context.effort.layouts[level, outcome] += 1


def in_words(shape: Shape, level: Level) -> str:
    """A layout as printed with a certificate, with the dimensions that are known at its level of the search."""
    degrees = {"tp": shape.tp, "dp": shape.dp} | shape.further_degrees
    parts = [f"{name} {value}" for name, value in degrees.items()]
    parts[0] += "".join(f" ({tp} on {name})" for name, tp in shape.cluster_tp)
    parts += [f"microbatch size {shape.microbatch_size}", f"recompute {shape.recompute}"]
    if level != "base":
        parts.append(shape.schedule + (f" (vpp {shape.vpp})" if shape.vpp > 1 else ""))
    return ", ".join([*parts, f"ZeRO {shape.zero_stage}"] if level == "variant" else parts)


def search_all(incumbent: Incumbent, bases: Iterable[Shape]) -> None:
    """Search all plans of an incumbent's request for faster ones, as a proof does; no bound is kept."""
    proof = Proof(incumbent, Improvement(incumbent))
    proof.run(list(bases))
    proof.raise_by_simulation()
