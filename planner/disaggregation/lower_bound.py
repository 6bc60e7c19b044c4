"""A lower bound on the step of every stage of the search that has attention and experts on two sets of ranks.

A step is the longest path through its tasks (`sim.disaggregation.timetable`), so that each path is a bound (`_paths`): along
one stream, with what its first task of a round waits for and what follows its last one, or with a microbatch through all
layers. Which path is longest depends on how many experts of each layer attention ranks keep: the more, the longer they compute
and the shorter expert ranks compute and exchanges take. The longer of two paths is at least any weighted mean of them, and such
a mean is a sum over layers, each of which has its least value at some number of kept experts (a Lagrangian relaxation of the
choice for all layers). Memory is left out, and that dispatches and combines may share links."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

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
"""Weights of two paths that are tried, in equal steps from 0 to 1 (a guess); every weight gives a bound, the best is taken."""

ROUNDING = 1e-12
"""Relative difference of two sums of the same seconds that rounding explains. Guess."""


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
    return None if math.isinf(least) else least * (1 - ROUNDING)


@dataclass(frozen=True, slots=True)
class _Path:
    """A path through the tasks of a step: seconds that no kept expert changes, and of each layer for each number of these."""

    alone: Seconds
    layer: tuple[Seconds, ...]


def least_step(start: DisaggregatedStage) -> Seconds:
    """A lower bound on the step of a stage with any numbers of kept experts. Raises NoRoute."""
    layers, paths = len(start.kept), tuple(_paths(start))
    found = max(path.alone + layers * min(path.layer) for path in paths)
    for (one, other), step in itertools.product(itertools.combinations(paths, 2), range(1, WEIGHTS)):
        weight = step / WEIGHTS
        layer = min(weight * a + (1 - weight) * b for a, b in zip(one.layer, other.layer, strict=True))
        found = max(found, weight * one.alone + (1 - weight) * other.alone + layers * layer)
    return found


def _paths(start: DisaggregatedStage) -> Iterator[_Path]:
    """Paths along each of the four streams, and one with a microbatch through all layers, of which one task or the head is that
    of all microbatches. A round begins when the one before has ended."""
    layers, rounds, passes = len(start.kept), start.rounds, start.microbatches * start.rounds
    numbers = range(0, start.workload.model.experts, chunk_size(start))
    costs = TaskCosts(start)
    keeping = [costs.of(replace(start, kept=(number,) * layers)) for number in numbers]
    dense = [[costs.seconds(_task("A", back, layer)) for layer in range(layers + 1)] for back in (False, True)]
    kept = [_both(own, "X") if number else (0.0, 0.0) for number, own in zip(numbers, keeping, strict=True)]
    each = {kind: [_both(own, kind) for own in keeping] for kind in "DEC"}
    least = {(kind, back): min(both[back] for both in each[kind]) for kind in each for back in (False, True)}
    closing, others = costs.closing()["attention"], start.microbatches - 1  # without kept experts, which add to it
    first, last, head = dense[False][0], dense[True][0], dense[False][layers] + dense[True][layers]

    yield _Path(passes * sum(map(sum, dense)) + closing, tuple(passes * sum(both) for both in kept))
    for number, kind in enumerate(each):  # in the order in which a microbatch passes a layer, in both directions
        earlier, later = [*each][:number], [*each][number + 1 :]
        before = first + sum(least[other, False] for other in earlier)
        behind = sum(least[other, True] for other in later) + last
        # the last microbatch passes the head between its forward and its backward, while the others' backwards may run
        passing = sum(least[other, False] for other in later) + head + sum(least[other, True] for other in earlier)
        waits = max(passing - others * max(backward for _, backward in each[kind]), 0.0)
        through = rounds * (before + waits + behind) + closing
        if kind == "E":  # with the fewest experts, which sum the fewest gradients
            through = max(through, through - closing - behind + keeping[-1].closing()["experts"])
        yield _Path(through, tuple(passes * sum(both) for both in each[kind]))
    longest = max(head, *least.values(), *itertools.chain.from_iterable(dense))
    alone = rounds * (sum(map(sum, dense)) + others * longest) + closing
    yield _Path(alone, tuple(rounds * sum(map(sum, both)) for both in zip(*each.values(), strict=True)))


def _both(costs: TaskCosts, kind: str) -> tuple[Seconds, Seconds]:
    """(forward, backward) seconds of a task of a layer with experts."""
    return costs.seconds(_task(kind, False)), costs.seconds(_task(kind, True))


def _task(kind: str, backward: bool, layer: int = 1) -> Task:
    return Task(kind, backward, layer, 0, 0, ())
