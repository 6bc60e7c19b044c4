"""Faster plans where messages share links: layers of the best plan are moved between near stages, by simulation.

The evaluator knows an idle network. Where the messages of several stages share links, stages at the borders of nodes wait
longer than it says, and should have fewer layers than local search by the evaluator gives them
(`planner.search.local_search`). So here every neighbour of the best plan is simulated: a layer is moved to one of the next two
stages, first from the stages that wait least for others in the simulated step to those that wait most. Such plans prove
nothing, and need not be in the searched space: a plan may fill its nodes evenly, or have mixed stages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from planner.placement.ranks import with_layers
from planner.placement.simulation import fits, step
from planner.search.incumbent import Incumbent
from sim.analytic.evaluator import evaluate
from sim.errors import NoRoute, NotDefined, NotModelled
from sim.plan.plan import Plan
from sim.results.report import pipeline_ranks

NEAR = 2
"""Largest distance of the two stages of a move (a guess): on `peers/metis-64`, a search over all pairs found no other moves."""


def move_layers(incumbent: Incumbent) -> None:
    """Simulate neighbours of the best plan until some in a row are no faster, if its step is longer than on an idle network."""
    best, budgets = incumbent.best, incumbent.budgets
    if best is None or step(best) <= _idle(best) * (1 + budgets.crowded_delay):
        return
    if incumbent.lower_bound >= incumbent.target and not incumbent.is_best_mixed:  # the bound does not cover mixed stages
        return
    seen, since_improvement = {best.layers}, 0
    neighbours = _neighbours(incumbent, best)
    while since_improvement < budgets.crowded_tries and not incumbent.limit.is_up():
        layers = next((one for one in neighbours if one not in seen), None)
        if layers is None:
            return
        seen.add(layers)
        with suppress(NoRoute, NotDefined):
            moved = with_layers(incumbent.request, best, layers)
            if not fits(moved) or _idle(moved) >= incumbent.cutoff:
                continue
            forwards = max(moved.config.num_microbatches) * moved.config.num_stages
            since_improvement += 1 + forwards // budgets.forwards_of_a_try
            if incumbent.challenge(moved)[1]:
                assert incumbent.best is not None
                best, since_improvement = incumbent.best, 0
                neighbours = _neighbours(incumbent, best)
            incumbent.report("moving layers between stages that share links")


def _neighbours(incumbent: Incumbent, plan: Plan) -> Iterator[tuple[int, ...]]:
    """Layers of each pipeline rank after a move of one layer for each virtual stage, the most promising move first."""
    waits = [row.bubble for row in pipeline_ranks(plan, incumbent.context.timelines.of(plan))]
    layers, vpp = plan.layers, plan.config.vpp
    stages = range(len(layers))
    pairs = [(waits[a] - waits[b], a, b) for a in stages for b in stages if 1 <= abs(a - b) <= NEAR]
    for _, a, b in sorted(pairs):
        if layers[a] > vpp:
            yield tuple(count + vpp * ((stage == b) - (stage == a)) for stage, count in enumerate(layers))


def _idle(plan: Plan) -> float:
    """Seconds of a step on an idle network; 0 where the evaluator does not model it."""
    try:
        return float(evaluate([plan])[0])
    except NotModelled:
        return 0.0
