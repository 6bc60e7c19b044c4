"""Splits of layers that differ over pipelines with virtual stages: steepest descent on the closed form of the step.

A pipeline rank holds a part of every range of layers, so the dynamic programme of `planner.bounds.unlike_stages` does not
apply. The virtual stages of a rank differ by at most one layer, so that the number of layers of each rank decides."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Sequence

from planner.bounds.unlike_stages import Pipeline
from planner.costs.context import PlanningContext
from planner.costs.unlike_layers import UnlikeStages
from planner.placement.ranks import virtual
from planner.request import Request
from planner.space import lengths
from planner.space.shape import Shape
from sim.analytic.pipeline_step import PipelineStage, stage_ends, weights_owed
from sim.plan import schedules
from sim.units import Seconds

ROUNDS = 24
"""Most layers that are moved for one pipeline (a guess): more help poor starts only."""
LENGTHS = 4
"""Most numbers of stages of each set of classes that are tried, the longest first (a guess)."""
ORDERED = 3
"""Number of classes up to which all orders are tried; of more, those by speed and by memory, each in both ways (a guess)."""
TOO_FULL: Seconds = 1e10
"""Seconds of a split that does not fit in memory, which grow with what is missing: longer than any step."""
GIVERS = 2
"""Number of slowest ranks from which a layer may be moved, beside the first (a guess)."""


def splits(
    context: PlanningContext, part: Request, shape: Shape, classes: Sequence[UnlikeStages], among: Collection[int] = ()
) -> list[Pipeline]:
    """Pipelines of a shape with virtual stages, the fastest by the closed form first.

    among: numbers of ranks, if not all. Layers are those of the model; the last stage may have fewer, where further layers are
    on it. Pipelines are those of each class alone, and of all classes, in every order of few."""
    found: list[tuple[Seconds, Pipeline]] = []
    for options in _sequences(context, part, shape, classes, among):
        search = ClosedForm(context, shape, options)
        seconds, layers = search.descended(part.workload.model.layers)
        further = part.workload.model.layers - options[0].layers.number
        own = (*layers[:-1], layers[-1] - further)
        if seconds < TOO_FULL and own[-1] >= 0:
            found.append((seconds, tuple(zip((one.cluster.name for one in options), own, strict=True))))
    return [pipeline for _, pipeline in sorted(found)]


def _sequences(
    context: PlanningContext, part: Request, shape: Shape, classes: Sequence[UnlikeStages], among: Collection[int]
) -> Iterator[tuple[UnlikeStages, ...]]:
    """The class of each stage of the pipelines that are tried."""
    most, m = part.workload.model.layers // shape.vpp, shape.microbatches(part.workload)
    for some in itertools.chain(((option,) for option in classes), _orders(classes)):
        every = tuple(option for option in some for _ in range(option.max_stages))
        fitting = (
            pp
            for pp in range(min(len(every), most), 0, -1)
            if lengths.allows(part, shape, pp) and shape.is_defined(m, pp) and (pp in among or not among)
        )
        for pp in itertools.islice(fitting, LENGTHS):
            yield every[:pp]


def _orders(classes: Sequence[UnlikeStages]) -> Iterator[tuple[UnlikeStages, ...]]:
    """Orders of all classes, if there are several; the order of keys in the topology decides among equal classes only."""
    if len(classes) <= ORDERED:
        yield from itertools.permutations(classes) if len(classes) > 1 else ()
        return
    by_speed = sorted(classes, key=lambda option: (option.kind_seconds()[option.layers.last].both, -option.room))
    by_memory = sorted(by_speed, key=lambda option: -option.room)
    yield from dict.fromkeys(tuple(order) for one in (by_speed, by_memory) for order in (one, one[::-1]))


class ClosedForm:
    """The closed form of pipelines of given classes, by the layers of each rank; messages take their least seconds."""

    def __init__(self, context: PlanningContext, shape: Shape, options: Sequence[UnlikeStages]):
        self._shape, self._options, self._layers = shape, options, options[0].layers
        self._m = shape.microbatches(self._layers.workload)
        hops = [context.messages.least(a.cluster, b.cluster, shape) for a, b in itertools.pairwise(options)]
        self._hops = [0.0, *hops, 0.0]
        """Seconds of a message to each rank from the one before."""
        self._waits = not schedules.get(shape.schedule).OVERLAPS_SENDS

    def descended(self, total: int) -> tuple[Seconds, tuple[int, ...]]:
        """The split after the best move of a layer has been made as long as it shortens the step."""
        layers = self._even(total)
        seconds, cycles = self.seconds(layers)
        for _ in range(ROUNDS):
            moves: list[tuple[Seconds, list[Seconds], tuple[int, ...]]] = [
                (*self.seconds(one), one) for one in self._neighbours(layers, cycles)
            ]
            best = min(moves, key=lambda move: move[0], default=None)
            if best is None or best[0] >= seconds:
                break
            seconds, cycles, layers = best
        return seconds, layers

    def _even(self, total: int) -> tuple[int, ...]:
        """Layers in proportion to the speed of each class, by largest remainders, at least one for each virtual stage."""
        kind = self._layers.last
        speeds = [1 / option.kind_seconds()[kind].both for option in self._options]
        shares = [max(self._shape.vpp, math.floor(total * speed / sum(speeds))) for speed in speeds]
        for index in itertools.cycle(range(len(shares))):
            if sum(shares) == total:
                return tuple(shares)
            if sum(shares) < total:
                shares[index] += 1
            elif shares[index] > self._shape.vpp:
                shares[index] -= 1
        raise AssertionError

    def _neighbours(self, layers: tuple[int, ...], cycles: Sequence[Seconds]) -> Iterator[tuple[int, ...]]:
        slowest = sorted(range(len(layers)), key=lambda rank: -cycles[rank])[:GIVERS]
        for a, b in itertools.product(dict.fromkeys((*slowest, 0)), range(len(layers))):
            if a != b and layers[a] > self._shape.vpp:
                yield tuple(n - (i == a) + (i == b) for i, n in enumerate(layers))

    def seconds(self, layers: tuple[int, ...]) -> tuple[Seconds, list[Seconds]]:
        """(closed form of the step, cycle of each rank); where memory does not suffice, `TOO_FULL` and more, and infinity."""
        pp, number = len(layers), self._layers.number
        ends = [min(end, number) for end in itertools.accumulate(virtual(layers, self._shape.vpp))]
        stages = list(zip([0, *ends[:-1]], ends, strict=True))
        found, beyond, full = list[PipelineStage](), 0.0, set[int]()
        for rank, option in enumerate(self._options):
            own, role = stages[rank::pp], (rank == 0, rank == pp - 1)
            parts = [self._layers.counts(*stage) for stage in own]
            counts = tuple(map(sum, zip(*parts, strict=True)))
            held = schedules.in_flight(self._shape.schedule, rank, pp, self._m, self._shape.vpp)
            excess = option.excess(counts, role, held, pp)
            if excess > 0:
                beyond, full = beyond + excess, full | {rank}
            cost, entry = option.cost(counts, role), option.cost(parts[0], (role[0], False))
            back, ahead = self._hops[rank : rank + 2]
            sends = (ahead, back, 0.0) if self._waits else (0.0, 0.0, ahead * self._shape.vpp)
            found.append(PipelineStage(cost.sending(*sends, cost.weight), entry.forward, entry.inputs, back, back))
        config = self._options[0].config
        every = stage_ends(found, config, self._m, 0.0, weights_owed(config, pp, self._m))
        seconds = TOO_FULL * (1 + beyond) if full else max(end.seconds for end in every)
        return seconds, [math.inf if rank in full else one.cost.cycle for rank, one in enumerate(found)]
