"""Bounds on plans with mixed stages of a model whose layers differ, by their placement: a dynamic programme over its cuts.

A placement fixes the slots of every replica of every stage (`planner.search.mixed`); which layers each stage has is left open.
A step is at least that of each replica. All have equally many microbatches, unless each may have a number of its own
(`may_finish`). Take one replica: on each stage it has compute, collectives, messages and memory of its own, and all replicas'
gradients. A stage i with the layers from a to b implies three lower bounds on the step, as in `planner.bounds.unlike_ranks`:

    (1) stage end     fill(i, a) + m cycle + tail
    (2) drain end     fill(i, a) + m busy + drain(i, a) + first tail
    (3) round trips   fill(i, a) + (n + 1) trip(i, b) + other steps of the stage + drain(i, a) + first tail

fill, drain and trip have the messages of this replica, and each layer on the fastest of the stages before, or behind. So the
bound of a stage does not depend on how the other layers are cut, and the least value of the largest bound over all cuts is a
lower bound on every plan of the placement.

Seconds of a stage are first those of its layers alone, by their kinds. Only stages of the best cut get all their costs and
their memory, until all stages of the best cut have them, or the bound is above the best plan.

Relaxations: the first stage has the least tail of all first stages; the sum of a tied embedding's gradient is left out, and
contention but for messages of replicas that keep step."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from planner.bounds.mixed_groups import sent
from planner.costs.layer_kinds import Counts, Ends, Layers
from planner.costs.mixed_stages import MixedStageCosts, geometry
from planner.costs.stage_positions import alike_replicas
from planner.costs.unlike_passes import KindSeconds, LinearPasses, layer_seconds
from planner.space.device_slots import Run, StageSlots, replica_groups
from planner.space.shape import Shape
from sim.analytic.stage_costs import StageCost, StageCosts
from sim.hardware.device_spec import DeviceSpec
from sim.kernels import communicators, memory
from sim.plan import schedules
from sim.plan.round_trips import round_trips
from sim.units import Bytes, Seconds

Array: TypeAlias = NDArray[np.float64]
MOST = 400
"""Most cuts that are looked at in one placement (a guess): with more, bounds are higher, and take longer."""


class Cut(NamedTuple):
    """A lower bound in seconds, and the layers of each stage of the cut that has it."""

    seconds: Seconds
    layers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """The stages of one replica on one place of a pipeline, of any layers: their costs, and the bytes that a plan may use."""

    costs: StageCosts
    spec: DeviceSpec
    room: Bytes
    kinds: tuple[KindSeconds, ...]
    passes: dict[Ends, LinearPasses]
    known: dict[tuple[Counts, Ends], StageCost]
    held: dict[tuple[object, ...], bool]


class PlacedCosts:
    """Costs of the places of all placements of a request; those that cost the same share them."""

    def __init__(self, costs: MixedStageCosts, layers: Layers):
        self.costs, self.layers = costs, layers
        self._places: dict[tuple[object, ...], Place] = {}

    def place(self, shape: Shape, stage: StageSlots, rows: tuple[int, ...], run: Run, pp: int) -> Place:
        """The place of a replica that is one of some rows of a stage. Raises NoRoute where no link joins the stage."""
        key = shape, geometry(stage, shape.tp), rows, pp
        if key not in self._places:
            config, spec = self.costs.config(shape, pp), run.cluster.node.device
            costs = StageCosts(self.layers.workload, config, self.costs.collectives(shape, stage).among(rows))
            splits = schedules.get(shape.schedule).SPLITS_BACKWARD
            kinds = tuple(
                KindSeconds.of(layer_seconds([costs], self.layers, kind, (spec,)), splits)
                for kind in range(len(self.layers.kinds))
            )
            room = self.costs.context.request.topology.room(spec)
            self._places[key] = Place(costs, spec, room, kinds, {}, {}, {})
        return self._places[key]

    def cost(self, place: Place, counts: Counts, ends: Ends) -> StageCost:
        """Costs of a stage without its messages."""
        if (counts, ends) not in place.known:
            passes = place.passes.setdefault(ends, LinearPasses(place.costs, self.layers, ends, (place.spec,)))
            place.known[counts, ends] = passes.cost(counts)
        return place.known[counts, ends]

    def fits(self, place: Place, counts: Counts, ends: Ends, pairs: tuple[tuple[int, int], ...]) -> bool:
        """Whether a stage fits beside its microbatches in flight (`schedules.in_flight`)."""
        key = counts, ends, pairs
        if key not in place.held:
            workload, config = self.layers.of(counts, ends[1]), place.costs.config
            inside = max(memory.rank_bytes(workload, config, sum(counts), held, *ends, waits) for held, waits in pairs)
            place.held[key] = inside + communicators.outside_torch(config) <= place.room * (1 + 1e-12)
        return place.held[key]


def replicas_of(costs: PlacedCosts, shape: Shape, placed: Sequence[StageSlots], own: int = 0) -> Iterator[PlacedReplica]:
    """The first replica of each group of those that are placed alike, under the schedule and ZeRO stage of a shape.

    own: its number of microbatches, where replicas may have numbers of their own. Raises NoRoute where no link joins two
    stages, NotModelled where a replica's cp ranks straddle clusters."""
    first = 0
    for runs in replica_groups(placed, shape.cp):
        rows = tuple(range(first, first := first + runs[0].count))
        places = [costs.place(shape, stage, rows, run, len(placed)) for stage, run in zip(placed, runs, strict=True)]
        yield PlacedReplica(costs, shape, places, runs, own)


def may_finish(costs: PlacedCosts, shape: Shape, placed: Sequence[StageSlots], seconds: Seconds) -> bool:
    """Whether replicas with numbers of microbatches of their own, at least one each, might process the batch in so many
    seconds (False is a proof that they do not). Raises as `replicas_of`.

    Each group of replicas by itself has as many microbatches as its bound allows."""
    total = costs.layers.workload.global_batch_size // shape.microbatch_size
    groups = [runs[0].count // shape.cp for runs in replica_groups(placed, shape.cp)]
    done = 0
    for number, replicas in enumerate(groups):

        def is_late(own: int, number: int = number) -> bool:
            replica = next(itertools.islice(replicas_of(costs, shape, placed, own), number, None))
            return replica.least(seconds).seconds >= seconds

        most = bisect.bisect_left(range(1, total + 1), True, key=is_late)
        if not most:
            return False
        done += most * replicas
    return done >= total


class PlacedReplica:
    """The dynamic programme of one replica. Positions are layers 0 to L; a stage of the layers from a to b begins with layer
    a. Only the last stage may be without layers, where those that predict further tokens are on it."""

    def __init__(self, costs: PlacedCosts, shape: Shape, places: Sequence[Place], runs: tuple[Run, ...], own: int = 0):
        self._costs, self._shape, self._places, self._pp = costs, shape, places, len(places)
        self._layers, self._number = costs.layers, costs.layers.number
        self._m = own or shape.microbatches(costs.layers.workload)
        self._config = places[0].costs.config
        schedule = schedules.get(shape.schedule)
        self._waits, self._splits = not schedule.OVERLAPS_SENDS, schedule.SPLITS_BACKWARD
        self._owed = schedules.most_in_flight(shape.schedule, self._pp, self._m, 1)[1]
        messages = sent(costs.costs, shape, runs, alike_replicas(runs, shape.tp) if self._waits and not own else 1)
        self._ahead, self._back = (np.array(way) for way in zip(*messages, strict=True))
        self._passed = [self._before(stage) for stage in range(self._pp)]
        self._behind = [self._later(stage) for stage in range(self._pp)]
        self._tables = [self._coarse(stage) for stage in range(self._pp)]
        self._is_exact = [np.zeros(one.shape, dtype=bool) for one in self._tables]
        self._first_tail = 0.0

    def least(self, cutoff: Seconds) -> Cut:
        """A lower bound in seconds on all cuts, at most `cutoff`, and the cut that has it; no layers where none is below it."""
        if self._pp > 1:
            self._first_tail = self._least_tail(cutoff)
        for _ in range(MOST):
            cut = self._best()
            if cut.seconds >= cutoff:
                return Cut(cutoff, ())
            ends = np.cumsum((0, *cut.layers)).tolist()
            open_stages = [s for s in range(self._pp) if not self._is_exact[s][ends[s], ends[s + 1]]]
            if not open_stages:
                return cut
            for stage in open_stages:
                self._refine(stage, ends[stage], ends[stage + 1])
        return self._best()

    def _least_tail(self, cutoff: Seconds) -> Seconds:
        """The least seconds behind the last backward of a first stage that may end within `cutoff` seconds."""
        place, ends = self._places[0], np.flatnonzero(self._tables[0][0] < cutoff).tolist()
        every = (self._costs.cost(place, self._layers.counts(0, end), (True, False)) for end in ends)
        return min((cost.tail(self._config) for cost in every), default=0.0)

    def _best(self) -> Cut:
        """The least value of the largest bound over all cuts."""
        values, chosen = self._tables[-1][:, self._number], list[NDArray[np.int64]]()
        for table in reversed(self._tables[:-1]):
            largest = np.maximum(table, values[None, :])
            chosen.append(largest.argmin(axis=1))
            values = largest.min(axis=1)
        first, layers = 0, list[int]()
        for past in (*(one.tolist() for one in reversed(chosen)), [self._number] * (self._number + 1)):
            layers.append(past[first] - first)
            first = past[first]
        return Cut(float(values[0]), tuple(layers))

    def _sums(self, stages: Sequence[int], name: str) -> Array:
        """Seconds of the first 0 to L layers, each on the fastest of some stages."""
        kinds = [self._places[stage].kinds for stage in stages]
        each = [min(getattr(own[kind], name) for own in kinds) for kind in range(len(self._layers.kinds))]
        return np.concatenate([[0.0], np.cumsum([each[kind] for kind in self._layers.order])])

    def _before(self, stage: int) -> tuple[Array, Array]:
        """Least seconds of fill and of drain before a stage, by its first layer."""
        if not stage:
            return np.zeros(self._number + 1), np.zeros(self._number + 1)
        before = range(stage)
        fill, drain = (self._sums(before, name) for name in ("forward", "inputs"))
        return fill + self._ahead[:stage].sum(), drain + self._back[1 : stage + 1].sum()

    def _later(self, stage: int) -> Array:
        """Least seconds of a microbatch from a stage to the last one and back, by the end of its layers."""
        behind = range(stage + 1, self._pp)
        if not behind:
            return np.zeros(self._number + 1)
        passed = self._sums(behind, "passed" if self._splits else "both")
        found: Array = passed[-1] - passed + self._ahead[stage:-1].sum() + self._back[stage + 1 :].sum()
        return found

    def _coarse(self, stage: int) -> Array:
        """Lower bounds of a stage by its first layer and the end of its layers, by the seconds of its layers alone; infinite
        where it cannot have them."""
        both, passed = (self._sums([stage], name) for name in ("both", "passed"))
        (fill, drain), sends = self._passed[stage], float(self._ahead[stage] + self._back[stage]) * self._waits
        own, waiting = both[None, :] - both[:, None], (both - passed)[None, :] - (both - passed)[:, None]
        found: Array = fill[:, None] + self._m * (own + sends)
        if stage:
            rest = min(self._owed, self._m) * waiting + self._back[stage] * self._waits
            found = np.maximum(found, found - rest + drain[:, None])
        first, end = np.meshgrid(np.arange(self._number + 1), np.arange(self._number + 1), indexing="ij")
        is_last = stage == self._pp - 1
        may_be_empty = is_last and self._layers.further > 0
        allowed = (end > first) | (may_be_empty & (end == first))
        allowed &= (first >= stage) if stage else (first == 0)
        allowed &= (end == self._number) if is_last else (end < self._number + (self._layers.further > 0))
        return np.where(allowed, found, np.inf)

    def _refine(self, stage: int, first: int, end: int) -> None:
        """Replace the bounds of all stages on a place with the same layers by those of all their costs."""
        counts, ends = self._layers.counts(first, end), (stage == 0, stage == self._pp - 1)
        size, table = end - first, self._tables[stage]
        firsts = np.array([a for a in range(self._number + 1 - size) if self._layers.counts(a, a + size) == counts])
        where = firsts, firsts + size
        self._is_exact[stage][where] = True
        pairs = schedules.in_flight(self._shape.schedule, stage, self._pp, self._m, 1)
        place = self._places[stage]
        if not self._costs.fits(place, counts, ends, pairs):
            table[where] = np.inf
            return
        table[where] = np.maximum(table[where], self._exact(stage, self._costs.cost(place, counts, ends), where))

    def _exact(self, stage: int, alone: StageCost, where: tuple[NDArray[np.int64], NDArray[np.int64]]) -> Array:
        """Lower bounds of a stage with these costs, by its first layers and the ends of its layers."""
        firsts, pasts = where
        ahead, back, m = float(self._ahead[stage]), float(self._back[stage]), self._m
        weight = alone.weight if self._splits else 0.0
        cost = alone.sending(ahead, back, 0.0, weight) if self._waits else alone.sending(0.0, 0.0, 0.0, weight)
        fill, drain = self._passed[stage][0][firsts], self._passed[stage][1][firsts]
        begin = np.array([cost.begin(seconds, self._config) for seconds in fill.tolist()])
        found: Array = begin + m * cost.cycle + cost.tail(self._config)
        if stage:
            found = np.maximum(found, begin + cost.last_backward(m, min(self._owed, m)) + drain + self._first_tail)
        if not self._splits:
            trip = cost.both + self._behind[stage][pasts]
            after = drain + self._first_tail if stage else cost.tail(self._config)
            for trips, forwards, backwards, *_ in round_trips(self._shape.schedule, stage, self._pp, m, 1):
                steps = forwards * cost.forward + backwards * cost.backward
                found = np.maximum(found, fill + (trips + 1) * trip + steps + after)
        return found
