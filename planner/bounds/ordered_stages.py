"""Stages of pipelines over node classes in a given order: their least costs, messages and memory."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate, pairwise
from typing import NamedTuple, Self

from planner.bounds.any_neighbours import Neighbours, least_tied, messages_between, rates_of
from planner.bounds.shared_nics import least_seconds, loads_of_classes
from planner.bounds.stage_hops import StageHops, least_messages
from planner.bounds.stage_messages import NOT_HELD, Held, HeldForwards, Sends
from planner.bounds.stage_sizes import StageSeconds, StageSizes
from planner.costs.context import PlanningContext
from planner.costs.node_classes import NodeClass
from planner.space import lengths
from sim.analytic.stage_costs import StageCost
from sim.errors import NoRoute
from sim.hardware.cluster import Cluster
from sim.plan import schedules
from sim.plan.parallel_config import BLOCK
from sim.plan.round_trips import RoundTrips, first_return, round_trips


def most_by_compute(option: NodeClass, seconds: float) -> int:
    """Most layers that a stage of a class computes for all microbatches within `seconds`, by the layers' own work alone."""
    return math.floor(min(seconds / (option.microbatches * option.layer_seconds) * (1 + 1e-12), option.workload.model.layers))


class Before(NamedTuple):
    """What a microbatch passes at least before a stage of each class, and behind it.

    borders: seconds of one message over each border up to the class; hop: least seconds of a message inside a class up to it;
    round_rate: least of `OrderedStages.rates` (forward and gradients of inputs) from the class on; by_rate: for each of the
    three rates, the (rate, class) of the classes up to the class, the least rate first."""

    borders: list[float]
    hop: list[float]
    round_rate: list[float]
    by_rate: list[list[list[tuple[float, int]]]]


class OrderedStages:
    """Least costs, messages and memory of the stages of pipelines over classes in an order, one stage or more of each class.

    Every number is a lower bound (for memory an upper bound on layers) over all pipelines of this shape and order. A subclass
    (`planner.bounds.shape_families`) relaxes them further, to hold for a family of shapes.

    horizon: largest number of seconds that is tested. either: the numbers hold for parameter gathers before the forwards and
    after the optimizer (`planner.space.shapes.overlaps`); then neither the first forward nor the tail waits for one.
    loads_nics: whether the loads of NICs are known; whole_chunks: whether the first of vpp virtual stages has k // vpp of k."""

    loads_nics = whole_chunks = True

    def __init__(self, context: PlanningContext, order: Sequence[NodeClass], horizon: float = math.inf, either: bool = False):
        self.order, self.shape, self.m, self.horizon = tuple(order), order[0].shape, order[0].microbatches, horizon
        self.vpp, self.layers, self.config = self.shape.vpp, order[0].workload.model.layers, order[0].config
        self.longest = lengths.longest(context.request, self.shape)
        schedule = schedules.get(self.shape.schedule)
        self.waits, self.chunked, self.splits = not schedule.OVERLAPS_SENDS, schedule.CHUNKED, schedule.SPLITS_BACKWARD
        self.context, self.either, self.clusters = context, either, tuple(option.cluster for option in order)
        self.nic = self._nic_kind()
        self.messages = [self._inside(option) for option in order]
        self.borders = [self._message(a, b) for a, b in pairwise(self.clusters)]
        most = min(order[-1].max_stages, self.longest or self.layers, self.layers)
        self.tied = context.tied.least(self.clusters[0], self.clusters[-1], self.shape, most, self.nic) if self.nic else 0.0
        self.max_stages = [min(option.max_stages, self.longest or option.max_stages) for option in order]
        self._sizes: dict[tuple[int, str, int | None, int | None, Sends | None], StageSizes] = {}
        self.held = HeldForwards(self.shape.schedule, self.m, min(sum(self.max_stages), self.layers))
        hops = StageHops(context, self.shape, self.clusters, self.nic, (self.messages, self.borders))
        self.hops, self.both = hops.between, hops.both if self.held.are_some else hops.none
        self._ahead, self._back = least_messages(order, self.messages, self.borders)
        self._by_compute: dict[float, list[int]] = {}
        self._sends: dict[tuple[int, str], Sends] = {}
        self.nics = loads_of_classes(context, order, self.nic) if self.loads_nics else [() for _ in order]
        self.holders: tuple[NodeClass, ...] = self.order  # whose memory counts: under the ZeRO stage that needs least
        self.neighbours = Neighbours([], [], [])  # what holds in any order
        self.wrap = self._message(self.clusters[-1], self.clusters[0]) if len(order) > 1 else 0.0  # last stage to first one
        self.possible = bool(self.nic) and all(map(math.isfinite, (*self.borders, self.tied)))
        self.may_be_first: Sequence[int] = (0,)

    def in_any_order(self) -> Self:
        """The same stages with numbers that hold for every order of every subset of two or more of the classes."""
        self.neighbours = Neighbours(messages_between(self.context, self.order), self.max_stages, self.rates)
        least = [min(filter(math.isfinite, row), default=0.0) for row in self.neighbours.between]
        self.messages, self.borders = least, [min(least)] * (len(self.order) - 1)
        self.tied, self.possible, self.may_be_first = least_tied(self.context, self.order), True, range(len(self.order))
        self._ahead, self._back, self._sends = least, least, {}
        return self

    def with_tied(self, tied: float) -> Self:
        """The same stages where the all-reduce of a tied embedding's gradient takes so many seconds."""
        found = copy.copy(self)
        found.tied, found._sizes, _ = tied, {}, found.__dict__.pop("first_tail", None)
        return found

    def _nic_kind(self) -> str:
        """The type of NICs of the pipelines; empty where none joins the classes."""
        with suppress(NoRoute):
            return self.context.fleets.nic_of(self.clusters)
        return ""

    def _message(self, source: Cluster, target: Cluster) -> float:
        """Least seconds of a message between neighbouring stages on two clusters of these pipelines."""
        return self.context.messages.least(source, target, self.shape, self.nic, self.clusters) if self.nic else math.inf

    def _inside(self, option: NodeClass) -> float:
        """Least seconds of a message between neighbouring stages of one class; 0 where the class holds a single stage."""
        seconds = self._message(option.cluster, option.cluster) if option.max_stages > 1 else 0.0
        return seconds if math.isfinite(seconds) else 0.0

    def cost(self, i: int, role: str, layers: int, recomputed: int = 0, sends: Sends | None = None) -> StageCost:
        """Least costs of a stage of class i in a role. sends: its messages, if known; else the least that it sends."""
        return self.order[i].with_messages(role, layers, *(sends or self.sends(i, role))[:2], recomputed)

    def sends(self, i: int, role: str) -> Sends:
        """Least seconds of the messages of a stage."""
        if (i, role) not in self._sends:
            ends = self._ahead[i] if role != "last" else 0.0, self.back(i) if role != "first" else 0.0
            self._sends[i, role] = self.sending(*ends)
        return self._sends[i, role]

    def sending(
        self, ahead: float, back: float, stage: int | None = None, stages: int = 0, both: float = 0.0, until: float = 0.0
    ) -> Sends:
        """The messages of a stage, of which the seconds to the next stage and to the previous one are known; stage: its number
        in a pipeline of `stages` stages, if known; both, until: as in `Held`. Activations from the previous stage take no less
        than gradients to it."""
        number = self.held.number(stage, stages)
        return Sends(ahead, back, Held(number, back, back, both, until) if number and back else NOT_HELD)

    def back(self, i: int) -> float:
        """Least seconds of a message from a stage of class i to the previous stage."""
        return self._back[i]

    def tail(self, cost: StageCost, role: str) -> float:
        """Seconds of a stage after its last backward."""
        return cost.tail(self.config, self.tied if role != "middle" else 0.0)

    def most_by_memory(self, i: int, role: str, after: int, pp: int | None) -> int:
        """Most layers that fit the memory of a stage with `after` stages behind it, in a pipeline of `pp` stages if given."""
        return self._most_by_memory(self.shape.schedule, i, role, after, pp)

    def _most_by_memory(self, schedule: str, i: int, role: str, after: int, pp: int | None) -> int:
        holder = self.holders[i]
        key = "memory", self.shape.schedule, self.vpp, schedule, role, after, pp
        if key not in holder.shared:
            holder.shared[key] = holder.memory.most_layers(role, *self._in_flight(schedule, after, pp))
        return int(holder.shared[key])

    def _in_flight(self, schedule: str, after: int, pp: int | None) -> tuple[tuple[tuple[int, int], ...], int]:
        """(least activations in flight on a stage with `after` stages behind it, pp where they depend on it, else 0)."""
        if not schedules.holds_more_before(schedule) or (self.chunked and pp is None):
            return ((self.vpp, 0),), 0
        stages = pp or after + 1
        return schedules.in_flight(schedule, stages - 1 - after, stages, self.m, self.vpp), stages

    def fewest(self, i: int, role: str, after: int, pp: int | None) -> tuple[int, ...]:
        """Fewest layers that a stage of 0, 1, ... layers recomputes with `after` stages behind it; empty: none."""
        return self._fewest(self.shape.schedule, i, role, after, pp)

    def _fewest(self, schedule: str, i: int, role: str, after: int, pp: int | None) -> tuple[int, ...]:
        return self.holders[i].memory.fewest(role, *self._in_flight(schedule, after, pp))

    def most_by_compute(self, seconds: float) -> list[int]:
        """Most layers of a stage of each class by the work of its layers alone."""
        if seconds not in self._by_compute:
            self._by_compute[seconds] = [most_by_compute(option, seconds) for option in self.order]
        return self._by_compute[seconds]

    def deferred(self, stage: int, stages: int) -> int:
        """Most weight gradients (W) that a stage may defer until after its last backward."""
        return self._deferred(self.shape.schedule, stage, stages)

    def _deferred(self, schedule: str, stage: int, stages: int) -> int:
        return schedules.weights_behind(schedule, stage, stages, self.m, self.shape.vpp)

    def round_trips(self, stage: int, stages: int) -> tuple[RoundTrips, ...]:
        """Sequences of steps that every pipeline of `stages` stages passes on a stage (`sim.plan.round_trips`)."""
        return round_trips(self.shape.schedule, stage, stages, self.m, self.shape.vpp)

    def first_return(self, stage: int, stages: int) -> RoundTrips | None:
        """Steps of a stage of every pipeline of `stages` stages to its end (`sim.plan.round_trips`); None where they differ."""
        return first_return(self.shape.schedule, stage, stages, self.m, self.shape.vpp)

    def sizes(
        self, i: int, role: str, after: int | None = None, pp: int | None = None, sends: Sends | None = None
    ) -> StageSizes:
        """Seconds of the stages of class i in a role by layers; shared by all orders in which its messages are equal.

        With `after` stages behind it, a stage recomputes the layers that its memory demands (`fewest`); else none. sends: as in
        `cost`."""
        key = i, role, after, pp, sends
        if key not in self._sizes:
            fewest = self.fewest(i, role, after, pp) if after is not None and self.shape.recompute == BLOCK else ()
            self._sizes[key] = self._sizes_with(i, role, fewest, sends)
        return self._sizes[key]

    def _sizes_with(self, i: int, role: str, recomputed: tuple[int, ...], sends: Sends | None = None) -> StageSizes:
        """`sizes` with the number of recomputed layers of a stage of 0, 1, ... layers; empty: none."""
        shared, (largest, counts) = self.order[i].shared, self.tested(i, recomputed)
        tied, sends = self.tied if role != "middle" else 0.0, sends or self.sends(i, role)
        key = type(self).__name__, self.either, largest, role, *sends, tied, counts, self.nics[i]
        if (found := shared.get(key)) is None:
            found = shared[key] = StageSizes(functools.partial(self._seconds, i, role, counts, sends), largest)
        return found

    def tested(self, i: int, recomputed: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
        """(most layers of a stage of class i that are tested, `recomputed` up to that number; empty: none)."""
        largest = max(most_by_compute(self.order[i], self.horizon), 1)
        return largest, recomputed[: largest + 1] if any(recomputed[: largest + 1]) else ()

    def _seconds(self, i: int, role: str, recomputed: tuple[int, ...], sends: Sends, layers: int) -> StageSeconds:
        m, cost = self.m, self.cost(i, role, layers, recomputed[layers] if recomputed else 0, sends)
        begin, tail = -math.inf if self.either else cost.begin(-math.inf, self.config), self.tail(cost, role)
        busy = m * cost.busy + sends.held.seconds(cost.both, cost.backward)
        own = max(m * cost.cycle, busy) + tail
        rank = cost.weight, tail, cost.forward + cost.send_forward, cost.inputs + cost.send_backward
        both = max(max(begin, 0.0) + own, least_seconds(self.context, self.shape, self.nics[i], role, layers))
        return StageSeconds(begin, own, both, busy, m * cost.lane, *rank, cost.forward + cost.inputs)

    @functools.cached_property
    def first_tail(self) -> float:
        """Least tail of the first stage over all sizes."""
        return min(_least_tail(self, i, counts) for i in self.may_be_first for counts in _recomputed_most(self))

    def only_tail(self, i: int, role: str, recomputed: tuple[int, ...], sends: Sends, layers: int) -> float:
        """Seconds of a stage of class i after its last backward."""
        return self.tail(self.cost(i, role, layers, recomputed[layers] if recomputed else 0, sends), role)

    @functools.cached_property
    def before(self) -> Before:
        """What a microbatch passes at least before and behind a stage of each class, in this order of the classes."""
        classes, rates = range(len(self.order)), self.rates
        rounds = [*accumulate((rate[1] for rate in reversed(rates)), min)][::-1]
        by_rate = [[sorted((rates[c][which], c) for c in range(i + 1)) for i in classes] for which in (0, 1, 2)]
        return Before([0.0, *accumulate(self.borders)], [*accumulate(self.messages, min)], rounds, by_rate)

    @functools.cached_property
    def rates(self) -> list[tuple[float, float, float]]:
        """By class, seconds of one layer for one microbatch: (forward, forward + gradients of inputs, gradients of inputs)."""
        return [rates_of(option) for option in self.order]


def _recomputed_most(stages: OrderedStages) -> list[tuple[int, ...]]:
    """Numbers of recomputed layers by size with which a tail is least: buckets of more layers may hide more of the reduction,
    and so may a backward that recomputes all layers, unless the network with the gradients of every microbatch is busier."""
    every: list[tuple[int, ...]] = [()]
    if stages.shape.recompute != BLOCK:
        return every
    return [tuple(range(stages.layers + 1)), *(every if stages.config.reduces_each_microbatch else ())]


def _least_tail(stages: OrderedStages, i: int, recomputed: tuple[int, ...]) -> float:
    """The least tail of a first stage of class i over all sizes, with the number of recomputed layers of each; empty:
    none."""
    shared, sends, (largest, counts) = stages.order[i].shared, stages.sends(i, "first"), stages.tested(i, recomputed)
    key = "tail", type(stages).__name__, largest, *sends, stages.tied, counts
    if key not in shared:
        shared[key] = min(stages.only_tail(i, "first", counts, sends, layers) for layers in range(1, largest + 1))
    found: float = shared[key]
    return found
