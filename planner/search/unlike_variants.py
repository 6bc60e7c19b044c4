"""What the variants of a shape consist of, for a model whose layers differ: pipelines by their number of ranks, with bounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from planner.bounds.rank_programme import RankProgramme, Split
from planner.bounds.unlike_deadline import deadline_bound, pipeline_lengths
from planner.bounds.unlike_lengths import bounds_by_length, rank_programme
from planner.bounds.unlike_stages import MOST_CLASSES, Pipeline, best_pipelines, single_stages
from planner.costs.context import PlanningContext
from planner.costs.unlike_layers import UnlikeCosts, UnlikeStages
from planner.placement.leaves import oversubscribed
from planner.request import Request
from planner.search.unlike_exhaust import MOST, Ranks, all_splits, are_few, orders
from planner.search.unlike_splits import splits
from planner.space.shape import Shape
from sim.errors import NoRoute
from sim.field_changes import changed
from sim.units import Seconds

BUILT = 3
"""Most pipelines of a variant with virtual stages that are built (a guess). Larger: slower; the others have higher bounds."""
ORDERS_BUILT = 6
"""The same without virtual stages, where each order of three classes has a pipeline (a guess)."""


class Refined(NamedTuple):
    """A lower bound on the pipelines of a variant, and on those of each number of ranks, where they can be told apart.

    tried: pipelines that may be fast, the best first."""

    bound: Seconds
    lengths: dict[int, Seconds]
    tried: list[Pipeline]


@dataclass(slots=True)
class Variants:
    """Bounds of the variants of a request. refined: the number of those whose lengths were bounded."""

    context: PlanningContext
    costs: UnlikeCosts
    refined: int = 0
    _known: dict[Shape, tuple[Seconds, dict[int, Seconds]]] = field(default_factory=dict)

    def refine(self, part: Request, shape: Shape, low: Seconds, cutoff: Seconds) -> Refined:
        """A variant whose bound is at least `low`; nothing is told apart from the cutoff on."""
        classes = self.costs.classes(shape)
        bound, lengths = self._bounded(shape, low, cutoff)
        if bound >= cutoff:
            return Refined(bound, {}, [])
        if len(classes) > MOST_CLASSES:
            return Refined(bound, {}, splits(self.context, part, shape, classes)[:BUILT])
        if shape.vpp > 1:
            many = {pp for pp, seconds in lengths.items() if seconds < cutoff and not are_few(classes, shape, pp)}
            return Refined(bound, lengths, splits(self.context, part, shape, classes, many)[:BUILT] if many else [])
        found = [*single_stages(self.context, shape, classes), *best_pipelines(self.context, shape, classes, cutoff)]
        found.sort(key=lambda one: one.seconds)
        own = {len(each.pipeline): each.seconds for each in reversed(found)}
        lengths = {pp: max(seconds, lengths.get(pp, bound)) for pp, seconds in own.items()}
        return Refined(bound, lengths, [each.pipeline for each in found if each.seconds < cutoff][:ORDERS_BUILT])

    def _bounded(self, shape: Shape, low: Seconds, cutoff: Seconds) -> tuple[Seconds, dict[int, Seconds]]:
        """A lower bound on the pipelines of a variant, at least `low`, and where that is below the cutoff those by length.

        They are the same for both orders of weight gathers, of which that behind the optimizer has the longer tail and nothing
        shorter."""
        one = changed(shape, overlap_param_gather=True)
        if one not in self._known:
            classes = self.costs.classes(one)
            bound, lengths = deadline_bound(self.context, one, classes, low, max(low, cutoff)), dict[int, Seconds]()
            if bound < cutoff:
                self.refined += 1
                lengths = dict.fromkeys(pipeline_lengths(self.context.request, one, classes), bound)
                lengths |= bounds_by_length(self.context, one, classes, cutoff)
            self._known[one] = bound, lengths
        bound, lengths = self._known[one]
        low = max(bound, low)
        return max(low, min(lengths.values(), default=low)), {pp: max(seconds, low) for pp, seconds in lengths.items()}

    def orders(self, shape: Shape, pp: int, cutoff: Seconds) -> Iterator[tuple[Seconds, Ranks]]:
        """The orders of the classes of pipelines of pp ranks, each with a lower bound in seconds of the pipelines whose ranks
        have these classes, at most the cutoff. None where they are many."""
        classes = self.costs.classes(shape)
        programme = self._programme(shape, classes, cutoff)
        for ranks in orders(classes, pp):
            with suppress(NoRoute):
                yield 0.0 if programme is None else min(programme.least_of(ranks), cutoff), ranks

    def splits(self, shape: Shape, ranks: Ranks, low: Seconds, cutoff: Seconds) -> tuple[Seconds, list[Split]]:
        """The layers of the ranks of all pipelines on given classes that may take less than so many seconds, and these seconds:
        the cutoff, or less where there are many, but at least `low`, a lower bound."""
        classes = self.costs.classes(shape)
        if (programme := self._programme(shape, classes, cutoff)) is not None:
            return programme.splits(ranks, low, MOST)
        every = all_splits(classes, shape, len(ranks))
        return (cutoff if every else low), every

    def _programme(self, shape: Shape, classes: Sequence[UnlikeStages], cutoff: Seconds) -> RankProgramme | None:
        """The programmes over the ranks of a shape, where positions on nodes are known."""
        known = not any(oversubscribed(option.cluster) for option in classes)
        return rank_programme(self.context, shape, classes, cutoff) if known else None
