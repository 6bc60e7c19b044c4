"""Faster plans that recompute modules of layers with experts, beside the proof.

Where memory is short, the stages of the searched space recompute as few whole layers as fit. The activation function of routed
experts (moe_act) frees the input of their last product for one pass over memory, and all experts (moe) free most of what a
layer keeps, without its attention; so a stage may fit with less. In the best plan and the fastest plans of other shapes, each
stage gets the recomputation that takes it least (`stage_recompute`), and layers move between neighbours while that helps. Such
plans are outside of the space that the certificate holds for, and prove nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

from planner.placement.recomputed_modules import ModuleChoices
from planner.placement.simulation import fits
from planner.search.incumbent import Incumbent
from planner.search.mixed import is_mixed
from planner.search.offloaded import neighbours, short_of_memory
from planner.space.tried_modules import may_recompute_modules
from sim.analytic.evaluator import evaluate
from sim.errors import NotModelled
from sim.plan.plan import Plan
from sim.units import Seconds

STARTS = 4
"""Fastest plans, the best one among them, whose stages get other recomputation (a guess)."""
NEAR = 1.2
"""Steps of these, over the best step (a guess): no start that was seen gained more than 7 %."""
MOVES = 8
"""Layers that are moved of each of these (a guess); to price one takes 2 to 10 milliseconds for each two stages."""
MOST_S: Seconds = 4.0
"""Seconds of the time limit that the proof leaves for all of this: twice the longest that was seen."""
SHARE = 0.1
"""Largest fraction of the time limit that is left for it (a guess)."""


def try_modules(incumbent: Incumbent) -> None:
    """Keep the fastest plan found whose stages recompute modules, where it is faster than the best plan and some device of
    that one is short of memory."""
    best, context = incumbent.best, incumbent.context
    if best is None or context.every_step or not may_recompute_modules(incumbent.request) or incumbent.limit.is_up():
        return
    if not short_of_memory(best):
        return
    incumbent.report("trying recomputation of modules")
    found: list[tuple[Seconds, Plan]] = []
    with suppress(NotModelled):  # the schedule has no closed form
        for start in _starts(incumbent):
            found += _moved(incumbent, ModuleChoices(start), start.layers)
    for seconds, plan in sorted(found, key=lambda one: one[0])[:1]:
        if seconds < incumbent.target and not incumbent.limit.is_up():
            incumbent.challenge(plan)


def modules_seconds(incumbent: Incumbent) -> Seconds:
    """Seconds of the time limit that the proof leaves for `try_modules`."""
    if incumbent.context.every_step or not may_recompute_modules(incumbent.request):
        return 0.0
    return min(MOST_S, SHARE * incumbent.request.time_limit)


def _starts(incumbent: Incumbent) -> list[Plan]:
    """The best plan, and the fastest plan of each other shape that is near it."""
    others = sorted(incumbent.fastest_of.values(), key=lambda pair: pair[0])
    near = [plan for seconds, plan in others if seconds < incumbent.cutoff * NEAR and plan is not incumbent.best]
    every = [incumbent.best, *near]
    return [plan for plan in every if plan is not None and plan.config.vpp == 1 and not is_mixed(plan)][:STARTS]


def _moved(incumbent: Incumbent, choices: ModuleChoices, layers: tuple[int, ...]) -> Iterator[tuple[Seconds, Plan]]:
    """(seconds on an idle network, plan) after the best move of a layer to or from a neighbouring stage has been made as long
    as it helps; none where some stage does not fit."""
    found = min(_priced(incumbent, choices, [layers]), key=_seconds, default=None)
    for _ in range(MOVES if found is not None else 0):
        if found is None or incumbent.limit.is_up():
            break
        fastest = min(_priced(incumbent, choices, neighbours(found[1].layers)), key=_seconds, default=found)
        if fastest[0] >= found[0]:
            break
        found = fastest
    if found is not None:
        yield found


def _priced(incumbent: Incumbent, choices: ModuleChoices, every: Iterable[tuple[int, ...]]) -> Iterator[tuple[Seconds, Plan]]:
    """(seconds on an idle network, plan) with each of some layers, where it fits and is allowed."""
    plans = [plan for plan in map(choices.plan_with, every) if plan is not None]
    allowed = [plan for plan in plans if fits(plan) and not incumbent.request.refuses(plan)]
    yield from zip(map(float, evaluate(allowed)), allowed, strict=True)


def _seconds(priced: tuple[Seconds, Plan]) -> Seconds:
    return priced[0]
