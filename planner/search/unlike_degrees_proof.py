"""A lower bound on all plans whose stages have degrees of their own on each cluster: branch and bound over layouts.

A layout says which shapes the stages of each cluster may have (`planner.bounds.unlike_degrees`), and how many stages, as the
target takes them on shared hosts (`planner.placement.shared_hosts`) and as messages leave time for. The first layouts have all
shapes whose stages have equally many ranks. The layout with the least bound is branched: into one for each cluster, if the
stages of several would have to be the last ones, else into one for each shape of the cluster that has most of them; one with a
single shape for each cluster is bounded again, with each order of the clusters and number of their stages (`counted_bound`),
and at last by its pipelines (`listed_bound`). The search ends where the least bound is one of these, or no less than the
target."""

from __future__ import annotations

import enum
import heapq
import itertools
from collections.abc import Iterable, Iterator, Sequence

from planner.bounds.relaxation import ONE_MICROBATCH
from planner.bounds.unlike_degrees import Layout, SomeShapes, below, layout_bound, message_bound, quick_bound
from planner.bounds.unlike_listing import counted_bound, listed_bound
from planner.costs.node_classes import NodeClass, node_classes
from planner.costs.unlike_messages import UnlikeMessages, ranks_of
from planner.placement.shared_hosts import Most
from planner.request import Request
from planner.search.incumbent import Incumbent
from planner.search.searched_space import WORDS
from planner.search.unlike_degrees import hosts_of
from planner.space.shape import Shape
from planner.space.unlike_degrees import are_unlike, matching, may_differ, own_shapes, templates, tried_degrees
from planner.target import ANY
from sim.plan.certificate import UNLIKE, SpaceBound
from sim.units import Seconds


def prove_unlike(incumbent: Incumbent, bases: Iterable[Shape]) -> Seconds | None:
    """A lower bound in seconds on all plans with unlike degrees, at most the step that is searched for; None where nothing is
    known of them: where there are none, or the time limit came first."""
    if incumbent.best is None or incumbent.context.every_step or not may_differ(incumbent.request) or incumbent.limit.is_up():
        return None
    incumbent.report("bounding stages of unlike degrees")
    with incumbent.context.effort.spent("bounds"):
        return UnlikeProof(incumbent, templates(incumbent.request, bases)).run()


def unlike_bound(request: Request, objective: Seconds, bound: Seconds | None, bases: Iterable[Shape]) -> SpaceBound | None:
    """What is proved of plans with unlike degrees beside a plan with a step of `objective`; None where nothing is."""
    return None if bound is None else SpaceBound(objective, min(bound, objective), _space(request, bases), UNLIKE)


def _space(request: Request, bases: Iterable[Shape]) -> str:
    """The plans that the bound holds for, in one line."""
    shapes, names = templates(request, bases), ("tp", *tried_degrees(request))

    def values(name: str) -> str:
        found = dict.fromkeys(getattr(shape, name) for shape in shapes)
        return ", ".join(WORDS.get(str(value), str(value)) for value in found)

    searched = "; ".join(f"{name} {values(name)}" for name in names if name in ("tp", "cp", "ep"))
    placed = "; cp and ep groups at equal positions on their nodes" if any(max(one.cp, one.ep) > 1 for one in shapes) else ""
    target = request.target
    taken = "" if target is None else f"; as {'some training framework' if target.name == ANY else target.name} can run them"
    return (
        f"pipelines over several clusters whose stages have one {', '.join(names[:-1])} and {names[-1]} on each, not the same "
        f"on all; {searched}; schedule {values('schedule')}; ZeRO {values('zero_stage')}; recompute {values('recompute')}; any "
        f"order of the clusters, number of stages and split of the layers; stages on the next free devices of their "
        f"cluster{placed}; no virtual stages{taken}"
    )


class Known(enum.IntEnum):
    """What the bound of an open layout comes from."""

    QUICK = 0
    TESTED = 1
    COUNTED = 2
    LISTED = 3


BETTER = {Known.QUICK: layout_bound, Known.TESTED: counted_bound, Known.COUNTED: listed_bound}
"""What gives a layout its next bound."""


class UnlikeProof:
    """Branch and bound over the layouts of some templates (`planner.space.unlike_degrees.templates`)."""

    def __init__(self, incumbent: Incumbent, shapes: Sequence[Shape]):
        self._context, self._target, self._templates = incumbent.context, incumbent.target, shapes
        self._messages, self._hosts = UnlikeMessages(incumbent.context), hosts_of(incumbent.context)
        self._tests = incumbent.budgets.unlike_tests
        self._open: list[tuple[Seconds, int, Known, Layout]] = []
        self._number = itertools.count()

    def run(self) -> Seconds | None:
        """A lower bound in seconds on all plans of the layouts, at most the target; None if the time limit comes before all
        layouts are listed. Where the budget of tests ends the search, it is the least bound of the layouts that are left."""
        for layout in self._first_layouts():
            if self._context.limit.is_up():
                return None
            if quick_bound(layout) >= self._target:  # most of them; what messages leave takes no less
                continue
            layout = below(layout, self._messages, self._target)
            self._push(max(quick_bound(layout), message_bound(layout, self._messages)), Known.QUICK, layout)
        while self._open:
            bound, _, known, layout = self._open[0]
            if known is Known.LISTED or self._tests <= 0 or self._context.limit.is_up():
                return bound
            heapq.heappop(self._open)
            self._branch(bound, known, layout)
        return self._target

    def _branch(self, bound: Seconds, known: Known, layout: Layout) -> None:
        """Replace a layout by itself with a better bound, or by several: one for each cluster whose stages must be the last
        ones, or for each shape of one of its clusters; `bound`: its own."""
        most = max(layout, key=lambda some: len(some.classes))
        last = [some for some in layout if some.must_be_last]
        if known is Known.QUICK or (len(most.classes) == 1 and len(last) < 2):
            self._tests -= 1
            better = BETTER[known](self._context, layout, self._messages, bound, self._target)
            self._push(better, Known(known + 1), layout)
            return
        for part in self._ending(layout, last) if len(last) > 1 else self._alone(layout, most):
            self._push(max(bound, quick_bound(part)), Known.QUICK, part)

    def _ending(self, layout: Layout, last: Sequence[SomeShapes]) -> Iterator[Layout]:
        """The layouts in which one of the clusters whose stages must be the last ones is the last."""
        for end in last:
            yield tuple(some if some is end else some.before_others() for some in layout)

    def _alone(self, layout: Layout, several: SomeShapes) -> Iterator[Layout]:
        """The layouts with one of the shapes of a cluster."""
        for option in several.classes:
            one = several.of(option)
            yield tuple(one if some is several else some for some in layout)

    def _push(self, bound: Seconds, known: Known, layout: Layout) -> None:
        """Add a layout to the open ones, if it has unlike shapes and its pipelines may be faster than the target."""
        if bound < self._target and (any(len(some.classes) > 1 for some in layout) or are_unlike(some.own for some in layout)):
            heapq.heappush(self._open, (bound, next(self._number), known, layout))

    def _first_layouts(self) -> Iterator[Layout]:
        """All samples of microbatches and numbers of ranks of the stages of each cluster, on two clusters or more."""
        request = self._context.request
        batch = request.workload.global_batch_size
        divisors = (number for number in range(1, batch + 1) if batch % number == 0)
        for samples, alike in itertools.product(divisors, matching(request, self._templates)):
            some = self._shapes(alike, samples)
            for clusters in request.joinable():
                found = [some[cluster.name] for cluster in clusters if cluster.name in some]
                for size in range(2, len(found) + 1):
                    for each in itertools.combinations(found, size):
                        yield from itertools.product(*each)

    def _shapes(self, shapes: Sequence[Shape], samples: int) -> dict[str, list[SomeShapes]]:
        """The shapes of the stages of each cluster, together where they have equally many ranks."""
        context = self._context
        every = [own for shape in shapes for own in own_shapes(context.request, shape, samples)]
        options = [
            option
            for own in every
            for option in node_classes(context, own)
            if option.memory.most_layers("middle", ONE_MICROBATCH)
        ]
        found: dict[str, dict[int, list[tuple[NodeClass, Most]]]] = {}
        for option in options:
            others = ((one.cluster, one.own) for one in options if one.cluster is not option.cluster)
            most = self._hosts.most((option.cluster, option.own), others)
            found.setdefault(option.cluster.name, {}).setdefault(ranks_of(option.own), []).append((option, most))
        return {name: [SomeShapes(*zip(*every, strict=True)) for every in own.values()] for name, own in found.items()}
