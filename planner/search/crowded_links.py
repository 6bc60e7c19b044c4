"""Faster plans where messages share links: layers are moved between stages, by simulation.

The evaluator knows an idle network. Where the messages of several stages share links, stages at the borders of nodes wait
longer than it says, and should have fewer layers than local search by the evaluator gives them
(`planner.search.local_search`). So here neighbours of the best plan are simulated: a layer is moved, first from the stages that
wait least for others in the simulated step to those that wait most. A plan of another kind that is a little slower may
gain more, so some of these are tried as well. Such plans prove nothing, and need not be in the searched space: a plan may fill
its nodes evenly, or have mixed stages."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain, zip_longest

from planner.placement.ranks import with_layers
from planner.placement.simulation import fits, step
from planner.search.incumbent import Incumbent, forwards
from planner.search.quick_trials import Kind, QuickTrials
from sim.analytic.evaluator import evaluate
from sim.errors import NoRoute, NotDefined, NotModelled
from sim.plan.plan import Plan
from sim.results.report import pipeline_ranks
from sim.units import Seconds

NEAR = 2
"""Largest distance of the two stages of every other move (a guess): moves over one stage found the best plans on
`peers/metis-64`, moves from one end of the pipeline to the other on `peers/dtfm-2-universities`."""
QUICK = 4
"""Quick simulations that count as one of the engine (a guess: it takes about ten times as long)."""


def move_layers(incumbent: Incumbent) -> None:
    """Simulate neighbours of the best plan until some in a row are no faster; then those of the fastest plans of other kinds
    that are not much slower (`Budgets.crowded_near`) and quick to simulate. Only of plans that take longer than on an idle
    network."""
    best, budgets = incumbent.best, incumbent.budgets
    if best is None or (incumbent.lower_bound >= incumbent.target and not incumbent.is_best_mixed):
        return  # the bound does not cover mixed stages
    near = incumbent.cutoff * (1 + budgets.crowded_near)
    quick = (pair for pair in incumbent.fastest_of.values() if forwards(pair[1]) < budgets.forwards_of_a_try)
    others = (pair for pair in quick if pair[0] <= near and not _alike(pair[1], best))
    starts = sorted(others, key=lambda pair: pair[0])[: budgets.crowded_starts]
    for seconds, start in sorted(((step(best), best), *starts), key=lambda pair: forwards(pair[1])):
        if is_crowded(incumbent, start, seconds):
            _descend(incumbent, start, seconds)


def is_crowded(incumbent: Incumbent, plan: Plan, seconds: Seconds | None = None) -> bool:
    """Whether a plan, whose simulated step takes some seconds, is delayed by messages that share links
    (`Budgets.crowded_delay`), and is faster than the best plan without them."""
    idle = _idle(plan)
    return idle < incumbent.target and (seconds or step(plan)) > idle * (1 + incumbent.budgets.crowded_delay)


def _descend(incumbent: Incumbent, start: Plan, seconds: Seconds) -> None:
    """Simulate neighbours of a plan, whose step takes some seconds, and then those of its first faster neighbour, and so on.

    Quick simulations rule out those that are no faster."""
    budgets, seen, since_improvement, quick = incumbent.budgets, {start.layers}, 0, QuickTrials(incumbent)
    make, neighbours = functools.partial(with_layers, incumbent.request, start), _neighbours(incumbent, start)
    kind = Kind("moved", make, forwards(start), incumbent.request.wishes.recompute is None)
    while since_improvement < budgets.crowded_tries and not incumbent.limit.is_up():
        layers = next((one for one in neighbours if one not in seen), None)
        if layers is None:
            return
        seen.add(layers)
        tries = 1 + QUICK * forwards(start) // budgets.forwards_of_a_try
        if quick.is_slower(kind, layers, math.nextafter(seconds, 0.0)):
            since_improvement += tries
            continue
        with suppress(NoRoute, NotDefined):
            moved = make(layers)
            if not fits(moved) or _idle(moved) >= incumbent.cutoff:
                continue
            since_improvement += QUICK * tries
            found = incumbent.challenge(moved, seconds)[0]
            if found < seconds:
                start, seconds, since_improvement = moved, found, 0
                neighbours = _neighbours(incumbent, start)
            incumbent.report("moving layers between stages that share links")


def _alike(plan: Plan, best: Plan) -> bool:
    """Whether two plans differ in nothing but the layers of their stages."""
    return plan.config == best.config and plan.placement == best.placement


def _neighbours(incumbent: Incumbent, plan: Plan) -> Iterator[tuple[int, ...]]:
    """Layers of each pipeline rank after a move of one layer for each virtual stage, the most promising move first."""
    waits = [row.bubble for row in pipeline_ranks(plan, incumbent.context.timelines.of(plan))]
    layers, vpp = plan.layers, plan.config.vpp
    stages = range(len(layers))
    pairs = sorted((waits[a] - waits[b], a, b) for a in stages for b in stages if a != b and layers[a] > vpp)
    near, far = ([pair for pair in pairs if (abs(pair[1] - pair[2]) <= NEAR) == is_near] for is_near in (True, False))
    for _, a, b in filter(None, chain.from_iterable(zip_longest(near, far))):
        yield tuple(count + vpp * ((stage == b) - (stage == a)) for stage, count in enumerate(layers))


def _idle(plan: Plan) -> float:
    """Seconds of a step on an idle network; 0 where the evaluator does not model it."""
    try:
        return float(evaluate([plan])[0])
    except NotModelled:
        return 0.0
