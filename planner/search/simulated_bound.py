"""Raises the bound of a proof by simulation of the pipelines that hold it, which also finds faster plans.

A variant's bound is the least step of its pipelines on an idle network. Where messages share links, steps are longer, so the
bound is below every plan. Here the pipeline with the least step of all variants is simulated, until it is proved to be no
faster than the best plan, and the bound rises to the step of the next one. Where no known pipeline of a variant is left, more
of them are listed (`planner.search.exhaust`). Pipelines that the target cannot run hold bounds, too: these are left out. Most
are ruled out by quick simulations (`planner.search.quick_trials`), the others by the engine."""

from __future__ import annotations

import heapq
import math
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field

from planner.bounds.greedy_filling import Pipeline
from planner.search.candidates import Candidate
from planner.search.evaluation import PipelineEvaluation, Stages
from planner.search.exhaust import Evaluated, Exhaust, OpenVariant
from planner.search.incumbent import Incumbent
from planner.search.quick_trials import QuickTrials
from planner.space.shape import Shape
from sim.units import Seconds


@dataclass(slots=True, eq=False)
class KnownVariant:
    """A variant of which all pipelines that take less than `OpenVariant.known` seconds on an idle network are evaluated.

    bound: no pipeline that is not simulated takes less. left: those that are known and not simulated, each with its seconds and
    its evaluation, the fastest first."""

    shape: Shape
    variant: OpenVariant
    bound: Seconds
    left: list[tuple[Seconds, int, PipelineEvaluation, Pipeline]] = field(default_factory=list)

    def refill(self, seen: Container[tuple[Shape, Stages]]) -> None:
        """Take the evaluated pipelines that are not `seen`, also those below the bound, whose busiest link may take longer."""
        evaluated = self.variant.evaluated.values()
        every = ((seconds, one.evaluation, row) for one in evaluated for row, seconds in one.seconds.items())
        fresh = (
            (seconds, one, row)
            for seconds, one, row in every
            if seconds < self.variant.known and (one.shape, one.stages(row)) not in seen
        )
        self.left = [(seconds, number, one, row) for number, (seconds, one, row) in enumerate(fresh)]
        heapq.heapify(self.left)
        self._raise()

    def next(self) -> Candidate | None:
        """Take the fastest pipeline that is left; None where its busiest link takes longer, so that it is not the fastest."""
        seconds, number, evaluation, pipeline = heapq.heappop(self.left)
        candidate = Candidate.of(evaluation, seconds, pipeline)
        is_later = candidate.seconds > seconds
        if is_later:
            heapq.heappush(self.left, (candidate.seconds, number, evaluation, pipeline))
        self._raise()
        return None if is_later else candidate

    def _raise(self) -> None:
        known = self.variant.known
        self.bound = max(self.bound, min(self.left[0][0], known) if self.left else known)


def simulate_known(incumbent: Incumbent, exhaust: Exhaust, variants: Iterable[KnownVariant], others: Seconds) -> None:
    """`simulate_fastest`, then `simulate_evaluated`."""
    quick = QuickTrials(incumbent)
    simulate_fastest(incumbent, exhaust, variants, others, quick)
    simulate_evaluated(incumbent, exhaust.every, quick)


def simulate_fastest(
    incumbent: Incumbent, exhaust: Exhaust, variants: Iterable[KnownVariant], others: Seconds, quick: QuickTrials
) -> None:
    """Simulate the fastest pipelines of variants, until a budget is used up, none might be faster than the best plan, or
    `others`, the least bound that is not one of these variants, is no higher."""
    budgets, every = incumbent.budgets, list(variants)
    heap = [(one.bound, number, one) for number, one in enumerate(every)]
    heapq.heapify(heap)
    tried, refused, asked = 0, 0, False
    while heap and tried < budgets.bound_tries and refused < budgets.bound_refused and not incumbent.limit.is_up():
        least, number, one = heapq.heappop(heap)
        if least >= min(others, incumbent.target):
            return
        if not asked and quick.work >= budgets.quick_work:
            asked = True
            if least < incumbent.cutoff * (1 - budgets.wide_gap):
                quick.allow(known_below(every, min(others, incumbent.target)))
        if one.left:
            candidate = one.next()
            is_new = candidate is not None and (candidate.shape, candidate.stages) not in incumbent.seen
            if candidate is not None and is_new and not quick.rules_out(candidate.shape, candidate.stages):
                tried, refused = _simulated(incumbent, candidate, tried, refused)
        else:
            exhaust.closer(one.shape, one.variant, one.bound, only=True)
            one.refill(incumbent.seen)
            if one.bound <= least and not one.left:  # there are too many to list
                return
        heapq.heappush(heap, (one.bound, number, one))
        incumbent.report("simulating pipelines that hold the bound")


def known_below(variants: Sequence[KnownVariant], seconds: Seconds) -> float:
    """The number of pipelines that are left of some variants and may take less than so many seconds; infinite where some of
    them are not known."""
    below = [one for one in variants if one.bound < seconds]
    if any(one.variant.known < seconds for one in below):
        return math.inf
    return sum(left < seconds for one in below for left, *_ in one.left)


def simulate_evaluated(incumbent: Incumbent, every: Iterable[Evaluated], quick: QuickTrials) -> None:
    """Simulate the fastest of all evaluated pipelines, until a budget is used up or none might be faster than the best plan."""
    budgets, target = incumbent.budgets, incumbent.target
    known = ((seconds, one.evaluation, row) for one in every for row, seconds in one.seconds.items() if seconds < target)
    heap = [(seconds, number, evaluation, row) for number, (seconds, evaluation, row) in enumerate(known)]
    heapq.heapify(heap)
    tried = refused = 0
    while heap and heap[0][0] < incumbent.target and tried < budgets.known_tries and refused < budgets.refused:
        if incumbent.limit.is_up():
            return
        seconds, _, evaluation, pipeline = heapq.heappop(heap)
        candidate = Candidate.of(evaluation, seconds, pipeline)
        if candidate.seconds < incumbent.target and (candidate.shape, candidate.stages) not in incumbent.seen:
            if quick.rules_out(candidate.shape, candidate.stages):
                tried += 1
            else:
                tried, refused = _simulated(incumbent, candidate, tried, refused)
            incumbent.report("simulating evaluated pipelines")


def _simulated(incumbent: Incumbent, candidate: Candidate, tried: int, refused: int) -> tuple[int, int]:
    """Simulate a candidate, and count: (tries since the last faster plan, candidates that the target cannot run).

    A simulation of many forwards counts as several tries."""
    better = incumbent.simulate(candidate)
    if better is None:
        return tried, refused + 1
    return 0 if better else tried + 1 + candidate.forwards // incumbent.budgets.forwards_of_a_try, refused
