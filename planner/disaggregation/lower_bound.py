"""A lower bound on the step of every stage of the search that has attention and experts on two sets of ranks.

Each set computes at least as long as its tasks take without waiting, and then sums gradients and updates weights; dispatches
follow each other. Attention ranks compute the longer, the more experts of a layer they keep; expert ranks compute, and
dispatches take, the shorter. The longer of two such times is at least any weighted mean of them, and such a
mean is a sum over layers, each of which has its least value at some number of kept experts (a Lagrangian relaxation of the
choice for all layers). Memory and combines are left out: those take as long as dispatches, which may share links with them."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

from planner.disaggregation.search import RECOMPUTE, chunk_size, sides, starts
from planner.time_limit import TimeLimit
from sim.disaggregation.costs import TaskCosts
from sim.disaggregation.stage import DisaggregatedStage
from sim.disaggregation.tasks import Task
from sim.errors import NoRoute
from sim.hardware.topology import Topology
from sim.units import Seconds
from sim.workload.workload import Workload

WEIGHTS = 16
"""Weights of attention that are tried, in equal steps from 0 to 1 (a guess); every weight gives a bound, the best is taken."""


def lower_bound(topology: Topology, workload: Workload, limit: TimeLimit) -> Seconds | None:
    """Least seconds of a step of any stage that `planner.disaggregation.search` tries, however many experts of each layer
    attention ranks keep. None without such stages, and where the time is up before all of them are bounded."""
    least = math.inf
    for attention, experts in sides(topology, workload):
        for start in starts(topology, workload, attention, experts, RECOMPUTE):
            if limit.is_up():
                return None
            try:
                least = min(least, least_step(start))
            except NoRoute:
                continue
    return None if math.isinf(least) else least


def least_step(start: DisaggregatedStage) -> Seconds:
    """A lower bound on the step of a stage with any numbers of kept experts. Raises NoRoute."""
    layers, passes = len(start.kept), start.microbatches * start.rounds
    numbers = range(0, start.workload.model.experts, chunk_size(start))
    costs = TaskCosts(start)
    dense = sum(costs.seconds(_task("A", back, layer)) for layer in range(layers + 1) for back in (False, True))
    keeping = {number: costs.of(replace(start, kept=(number,) * layers)) for number in numbers}
    each = {kind: [sum(own.seconds(_task(kind, back)) for back in (False, True)) for own in keeping.values()] for kind in "ED"}
    kept = [sum(own.seconds(_task("X", back)) for back in (False, True)) if n else 0.0 for n, own in keeping.items()]
    attention = passes * dense + costs.closing()["attention"]  # without kept experts, which add to both
    closing = {"E": keeping[numbers[-1]].closing()["experts"]}  # with the fewest experts
    found = 0.0
    for kind, step in itertools.product(each, range(WEIGHTS + 1)):
        weight = step / WEIGHTS
        layer = min(weight * a + (1 - weight) * b for a, b in zip(kept, each[kind], strict=True))
        found = max(found, weight * attention + (1 - weight) * closing.get(kind, 0.0) + layers * passes * layer)
    return found


def _task(kind: str, backward: bool, layer: int = 1) -> Task:
    return Task(kind, backward, layer, 0, 0, ())
