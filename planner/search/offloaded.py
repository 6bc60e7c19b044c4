"""Faster plans whose optimizer state is in host memory, on all stages or on those of some clusters, beside the proof.

Where devices are short of memory, stages recompute layers, or have more tensor parallelism or a longer pipeline than they would
need. With the optimizer state on the hosts (`sim.kernels.offload`) they have room, and every step pays for an update on CPUs:
the more microbatches a step has, the less that counts. The proof searches offload only where it is pinned, so the best shapes
with it go through the search for a first plan, with a third of its budgets, and then all plans with it through that of the
proof. Then stages of some clusters alone offload (`stage_offload`): of the best plan, and of the fastest plans in which all do.
Such plans are outside of the space that the certificate holds for, and prove nothing."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from planner.placement.ranks import with_layers
from planner.placement.simulation import fits
from planner.search.branch_and_bound import search_all
from planner.search.first_plan import find_first_plan
from planner.search.incumbent import Incumbent
from planner.search.mixed import is_mixed
from planner.search.short_chunks import FEW, bases_of, least_estimate
from planner.space.shape import split_backward
from planner.space.tried_offload import may_differ, may_offload
from planner.time_limit import TimeLimit
from sim.analytic.evaluator import evaluate
from sim.errors import NoRoute, NotDefined, NotModelled, PlanError
from sim.kernels import memory
from sim.plan.offloading import OPTIMIZER
from sim.plan.plan import Plan
from sim.units import Seconds

KEPT = "none", OPTIMIZER
"""What the hosts of a stage may keep here (`sim.plan.stage_options`)."""
FULL = 0.8
"""Share of a device's memory, beside the head-room, above which it counts as short of memory (a guess)."""
GAIN = 0.02
"""Fraction of a step that such plans must save: published updates on hosts took longer than predicted (a guess)."""
STARTS = 3
"""Fastest plans in which all stages offload, of which then those of some clusters alone do (a guess)."""
MOVES = 4
"""Layers that are moved of each of these (a guess); to choose one takes 10 to 20 milliseconds for each two stages."""
NEAR = 1.1
"""Steps of plans on an idle network, over the best step, up to which their layers are moved (a guess)."""
MOST_S: Seconds = 6.0
"""Seconds of the time limit that the proof leaves for all of this, three times the longest that was seen, and the most that the
search of all plans takes of them."""
SHARE = 0.1
"""Largest fraction of the time limit that is left for it (a guess)."""


def try_offloaded(incumbent: Incumbent) -> None:
    """Keep the fastest plan found that offloads, where it is faster than the best plan by `GAIN`, and some device of
    that one is short of memory."""
    best, context = incumbent.best, incumbent.context
    if best is None or context.every_step or not may_offload(incumbent.request) or incumbent.limit.is_up():
        return
    if not short_of_memory(best):
        return
    incumbent.report("trying the optimizer on the hosts")
    inner = _with_offload(incumbent)
    bases = list(bases_of(inner.request))
    least = least_estimate(inner, map(split_backward, bases)) if bases else math.inf
    if least < inner.cutoff:
        find_first_plan(inner, bases)
    if least < incumbent.cutoff * (1 - GAIN) and not incumbent.limit.is_up():
        inner.limit = inner.context.limit = TimeLimit(min(MOST_S, incumbent.limit.seconds_left))
        search_all(inner, bases_of(inner.request, True))
    context.simulated += (one for one in inner.context.simulated if one is not inner.best)
    target = incumbent.cutoff * (1 - GAIN)
    if inner.best is not None and inner.cutoff < target:
        incumbent.keep(inner.best)
    if may_differ(incumbent.request):
        alike = sorted(inner.fastest_of.values(), key=lambda pair: pair[0])[:STARTS]
        _try_some_clusters(incumbent, [best, *(plan for _, plan in alike)], target)
    incumbent.report("trying the optimizer on the hosts")


def offload_seconds(incumbent: Incumbent) -> Seconds:
    """Seconds of the time limit that the proof leaves for `try_offloaded`."""
    if incumbent.context.every_step or not may_offload(incumbent.request):
        return 0.0
    return min(MOST_S, SHARE * incumbent.request.time_limit)


def short_of_memory(plan: Plan) -> bool:
    """Whether some stage recomputes, or fills more than `FULL` of what the head-room leaves of its devices."""
    if plan.config.recompute != "none":
        return True
    room = FULL * (1.0 - plan.topology.memory_headroom)
    return any(peak > room * limit for peak, limit in zip(memory.peak_memory(plan), memory.limits(plan), strict=True))


def _with_offload(incumbent: Incumbent) -> Incumbent:
    """An incumbent of the request with the optimizer on the hosts, whose plans must be faster than the best one."""
    request, outer = incumbent.request, incumbent.context
    context = outer.of(replace(request, wishes=replace(request.wishes, offload=OPTIMIZER)))
    context.limit, context.effort, context.timelines = incumbent.limit, outer.effort, outer.timelines
    return Incumbent(context.request, context, FEW, incumbent.limit, incumbent.best)


def _try_some_clusters(incumbent: Incumbent, starts: list[Plan], target: Seconds) -> None:
    """Simulate the fastest of the plans that differ from `starts` in which clusters' stages offload, after moves of layers."""
    found: list[tuple[Seconds, Plan]] = []
    for start in starts:
        found += (_moved(incumbent, *one) for one in _on_some(incumbent, start) if one[0] < incumbent.cutoff * NEAR)
    for seconds, plan in sorted(found, key=lambda one: one[0])[:1]:
        if seconds < min(target, incumbent.target) and not incumbent.limit.is_up():
            incumbent.challenge(plan)


def _on_some(incumbent: Incumbent, start: Plan) -> Iterator[tuple[Seconds, Plan]]:
    """(seconds on an idle network, plan) of a plan whose stages on some of its clusters, not all, offload."""
    config = start.config
    if config.vpp > 1 or config.cp > 1 or config.splits_experts or is_mixed(start):
        return
    names = [start.placement[config.first_rank(pp_rank)].cluster for pp_rank in range(config.pp)]
    for some in itertools.product(KEPT, repeat=len(set(names))):
        if len(set(some)) == 1 or incumbent.limit.is_up():
            continue
        keeps = dict(zip(dict.fromkeys(names), some, strict=True))
        unlike = replace(config, offload=(OPTIMIZER,), stage_offload=tuple(keeps[name] for name in names))
        yield from _priced(incumbent, replace(start, config=unlike, prediction=None, certificate=None), start.layers)


def _priced(incumbent: Incumbent, plan: Plan, layers: tuple[int, ...]) -> Iterator[tuple[Seconds, Plan]]:
    """(seconds on an idle network, plan) with these layers, where it fits and is allowed."""
    with suppress(NoRoute, NotDefined, NotModelled, PlanError):
        found = with_layers(incumbent.request, plan, layers)
        if fits(found):
            yield float(evaluate([found])[0]), found


def _moved(incumbent: Incumbent, seconds: Seconds, plan: Plan) -> tuple[Seconds, Plan]:
    """The plan after the best move of a layer to or from a neighbouring stage has been made as long as it helps."""
    for _ in range(MOVES):
        if incumbent.limit.is_up():
            break
        near = (one for layers in neighbours(plan.layers) for one in _priced(incumbent, plan, layers))
        fastest = min(near, key=lambda one: one[0], default=(seconds, plan))
        if fastest[0] >= seconds:
            break
        seconds, plan = fastest
    return seconds, plan


def neighbours(layers: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The layers of the stages after a move of one layer to a neighbouring stage, of which each keeps one."""
    for a, b in itertools.pairwise(range(len(layers))):
        for giver, taker in ((a, b), (b, a)):
            if layers[giver] > 1:
                yield tuple(count + (stage == taker) - (stage == giver) for stage, count in enumerate(layers))
