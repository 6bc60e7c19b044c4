"""Plans with mixed stages of a model whose layers differ: the placements of its stand-ins, each with a bound and its best cut.

A placement gives the slots of each stage (`planner.search.mixed`); any split of the model's own layers may be on them. The
deadline is the step of the fastest plan: most placements are ruled out by the seconds of their layers alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from planner.bounds.unlike_placed import Cut, PlacedCosts, may_finish, replicas_of
from planner.bounds.unlike_work import UnlikeWork
from planner.costs.mixed_stages import mixed_costs
from planner.costs.unlike_layers import UnlikeCosts
from planner.placement.ranks import assemble
from planner.request import Request
from planner.search.mixed import mixed_placements
from planner.space import stand_in
from planner.space.device_slots import StageSlots, devices
from planner.space.mixed_schedules import playable_variants, runs_alike
from planner.space.shape import Shape
from planner.space.shapes import overlaps
from sim.errors import NoRoute, NotModelled
from sim.plan import schedules
from sim.plan.plan import Plan
from sim.units import Seconds

HALVINGS = 4
"""Halvings of the difference between both bounds of a placement whose replicas may have numbers of microbatches of their own (a
guess): more take longer, and give a higher bound."""


@dataclass(frozen=True, slots=True)
class Placement:
    """A shape of a stand-in under any schedule, and the slots of its stages."""

    part: Request
    shape: Shape
    placed: tuple[StageSlots, ...]


class BestCut(NamedTuple):
    """A lower bound in seconds on the plans of a placement. layers: those of each stage under a variant of its shape with this
    bound; none where the bound is not that of a cut."""

    seconds: Seconds
    variant: Shape | None = None
    layers: tuple[int, ...] = ()


def placements(request: Request, work: UnlikeWork) -> Iterator[tuple[Seconds, Placement]]:
    """All placements of the stand-ins with their bounds by total work; none on one cluster."""
    for part in stand_in.stand_ins(request):
        for shape, placed in mixed_placements(part):
            yield work.bound(shape), Placement(part, shape, placed)


class PlacementBounds:
    """Bounds of the placements of a request, which share the costs of their stages."""

    def __init__(self, costs: UnlikeCosts):
        self._layers = costs.layers
        self._costs = PlacedCosts(mixed_costs(costs.context), costs.layers)

    def of(self, one: Placement, low: Seconds, high: Seconds) -> BestCut:
        """A lower bound in seconds, at least `low` and at most `high`, on the plans of a placement; `high` where it has none.

        low: a lower bound. There is no cut where replicas may have unlike numbers of microbatches."""
        part, shape, several = one.part, one.shape, len(one.placed) > 1
        variants = list(playable_variants(part, shape, several))
        able = [schedules.get(variant.schedule) for variant in variants]
        every = [each for variant in variants for each in overlaps(variant)]
        if not runs_alike(part, shape, len(one.placed), able):
            return BestCut(self._of_own(every, one.placed, low, high))
        best = BestCut(high)
        for variant in every if shape.divides(part.workload) else ():
            cut = self._of_variant(variant, one.placed, best.seconds)
            if cut.seconds < best.seconds:
                best = BestCut(max(cut.seconds, low), variant, cut.layers)
        return best

    def _of_own(self, variants: Sequence[Shape], placed: tuple[StageSlots, ...], low: Seconds, high: Seconds) -> Seconds:
        """A lower bound, at least `low` and at most `high`, where replicas have numbers of microbatches of their own."""
        if math.isinf(high) or not self._may_finish(variants, placed, high):
            return low if math.isinf(high) else high
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            low, high = (low, middle) if self._may_finish(variants, placed, middle) else (middle, high)
        return low

    def _may_finish(self, variants: Sequence[Shape], placed: tuple[StageSlots, ...], seconds: Seconds) -> bool:
        """Whether some plan might end within so many seconds."""
        for variant in variants:
            with suppress(NoRoute, NotModelled):  # no plan has such stages
                if may_finish(self._costs, variant, placed, seconds):
                    return True
        return False

    def _of_variant(self, shape: Shape, placed: tuple[StageSlots, ...], cutoff: Seconds) -> Cut:
        """The largest of the bounds of all replicas, at most `cutoff`."""
        largest = Cut(0.0, ())
        try:
            for replica in replicas_of(self._costs, shape, placed):
                cut = replica.least(cutoff)
                largest = cut if cut.seconds > largest.seconds else largest
                if largest.seconds >= cutoff:
                    break
        except (NoRoute, NotModelled):  # no plan has such stages
            return Cut(math.inf, ())
        return largest

    def plan(self, one: Placement, cut: BestCut, request: Request) -> Plan:
        """The plan of a cut with the model's own layers, not simulated. Raises as `planner.placement.ranks.build`."""
        assert cut.variant is not None
        layers = (*cut.layers[:-1], cut.layers[-1] + self._layers.further)
        made = assemble(one.part, cut.variant, layers, devices(one.placed, one.shape.tp), "certified")
        return stand_in.of_model(made, request)
