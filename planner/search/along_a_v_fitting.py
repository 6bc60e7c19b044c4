"""Some plan of a pinned schedule along a V that fits memory, not simulated, found without a search for the fastest.

Of each shape the longest pipeline is tried, which leaves each rank the fewest layers. Shapes with the smallest microbatches
come first, then those with the widest tensor groups, and those with full recomputation. Where none is found, a shorter
pipeline, or one of a further shape, may still fit."""

from __future__ import annotations

import itertools

from planner.costs.context import PlanningContext
from planner.request import Request
from planner.search.along_a_v import Layout, Search, check
from planner.space.shape import Shape
from sim.errors import Infeasible
from sim.plan.plan import Plan

MOST = 24
"""Shapes that are tried (a guess); each takes some tens of milliseconds where none fits."""
SEQUENCES = 6
"""Sequences of clusters, and orders of gathers, that are tried of each shape (a guess)."""


def some_plan(request: Request) -> Plan | None:
    """Some plan along a V that fits memory and that the request allows; None where none is found."""
    try:
        check(request)
        search = Search(request, PlanningContext(request))
    except Infeasible:
        return None
    longest = dict[Shape, Layout]()
    for one in sorted(search.layouts, key=lambda layout: layout.pp):
        longest[one.shape] = one
    for layout in sorted(longest.values(), key=_leanness)[:MOST]:
        for placed in itertools.islice(search.placed(layout), SEQUENCES):
            found = next(placed.balanced(), None)
            if found is not None:
                return found
    return None


def _leanness(layout: Layout) -> tuple[int, int, bool]:
    """A key that puts layouts with little memory on a device first."""
    return layout.shape.microbatch_size, -layout.shape.tp, layout.shape.recompute != "full"
