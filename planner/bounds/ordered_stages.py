"""Stages of pipelines over node classes in a given order: their least costs, messages and memory."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate, pairwise
from typing import NamedTuple, Self, TypeAlias

from planner.bounds.any_neighbours import Neighbours, least_tied, messages_between, rates_of
from planner.bounds.shared_nics import least_seconds, loads_of_classes
from planner.bounds.stage_sizes import StageSeconds, StageSizes
from planner.costs.context import PlanningContext
from planner.costs.node_classes import NodeClass
from planner.placement.leaves import oversubscribed
from planner.space import lengths
from sim.analytic.stage_costs import StageCost
from sim.errors import NoRoute
from sim.hardware.cluster import Cluster
from sim.plan import schedules
from sim.plan.parallel_config import BLOCK
from sim.plan.round_trips import RoundTrips, round_trips

Sends: TypeAlias = tuple[float, float]
"""Seconds of the messages of a stage to the next stage and to the previous one."""


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


class StageHops:
    """Messages of stages whose number in their class is known, and with it their positions on nodes."""

    def __init__(self, stages: OrderedStages):
        self._stages = stages
        self._hops: dict[tuple[tuple[int, int], tuple[int, int]], float] = {}

    @functools.cached_property
    def _together(self) -> int:
        return self._stages.context.messages.together(self._stages.clusters, self._stages.shape)

    def between(self, classes: Sequence[int]) -> list[float]:
        """Least seconds of the message between each two neighbouring stages of a pipeline, whose stages are of these classes.

        On an oversubscribed fabric, other nodes may have other positions: then the positions do not count."""
        stages = self._stages
        if any(oversubscribed(cluster) for cluster in stages.clusters):
            return [stages.messages[a] if a == b else stages.borders[a] for a, b in pairwise(classes)]
        ends = [(i, index - classes.index(i)) for index, i in enumerate(classes)]
        return [self._hop(*pair) for pair in pairwise(ends)]

    def _hop(self, source: tuple[int, int], target: tuple[int, int]) -> float:
        """Least seconds of the messages between two neighbouring stages (class, number of the stage in its class)."""
        if (source, target) not in self._hops:
            stages, ((a, i), (b, j)) = self._stages, (source, target)
            ends = (stages.clusters[a], i), (stages.clusters[b], j)
            to_and_fro = [(*here, *there) for here, there in (ends, ends[::-1])]
            hop = stages.context.messages.hop
            self._hops[source, target] = min(hop(*each, stages.shape, stages.nic, self._together) for each in to_and_fro)
        return self._hops[source, target]


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
        self.hops = StageHops(self).between
        self._ahead, self._back = self._least_messages()
        self._by_compute: dict[float, list[int]] = {}
        self._sends: dict[tuple[int, str], tuple[float, float]] = {}
        self.nics = loads_of_classes(context, order, self.nic) if self.loads_nics else [() for _ in order]
        self.holders: tuple[NodeClass, ...] = self.order
        """The classes whose memory counts: under the ZeRO stage of the family that needs least."""
        self.neighbours = Neighbours([], [], [])  # what holds in any order
        self.wrap = self._message(self.clusters[-1], self.clusters[0]) if len(order) > 1 else 0.0
        """Least seconds of a message from the last stage to the first one, between virtual stages."""
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
        return self.order[i].with_messages(role, layers, *(sends or self.sends(i, role)), recomputed)

    def sends(self, i: int, role: str) -> tuple[float, float]:
        """Least seconds of the messages of a stage to the next stage and to the previous one."""
        if (i, role) not in self._sends:
            self._sends[i, role] = self._ahead[i] if role != "last" else 0.0, self.back(i) if role != "first" else 0.0
        return self._sends[i, role]

    def sending(self, ahead: float, back: float) -> Sends:
        """The messages of a stage, of which the seconds to the next stage and to the previous one are known."""
        return ahead, back

    def back(self, i: int) -> float:
        """Least seconds of a message from a stage of class i to the previous stage."""
        return self._back[i]

    def _least_messages(self) -> tuple[list[float], list[float]]:
        """Least seconds of a message from a stage of each class to the next stage, and to the previous one."""
        pairs = zip(self.order, self.messages, strict=True)
        inner = [[message] if option.max_stages > 1 else [] for option, message in pairs]
        ahead = [min([*own, *self.borders[i : i + 1]], default=0.0) for i, own in enumerate(inner)]
        return ahead, [min([*own, *self.borders[max(i - 1, 0) : i]], default=0.0) for i, own in enumerate(inner)]

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
            holder.shared[key] = holder.memory.most_layers(role, *self._held(schedule, after, pp))
        return int(holder.shared[key])

    def _held(self, schedule: str, after: int, pp: int | None) -> tuple[tuple[tuple[int, int], ...], int]:
        """(least activations in flight on a stage with `after` stages behind it, pp where they depend on it, else 0)."""
        if not schedules.holds_more_before(schedule) or (self.chunked and pp is None):
            return ((self.vpp, 0),), 0
        stages = pp or after + 1
        return schedules.in_flight(schedule, stages - 1 - after, stages, self.m, self.vpp), stages

    def fewest(self, i: int, role: str, after: int, pp: int | None) -> tuple[int, ...]:
        """Fewest layers that a stage of 0, 1, ... layers recomputes with `after` stages behind it; empty: none."""
        return self._fewest(self.shape.schedule, i, role, after, pp)

    def _fewest(self, schedule: str, i: int, role: str, after: int, pp: int | None) -> tuple[int, ...]:
        return self.holders[i].memory.fewest(role, *self._held(schedule, after, pp))

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
        own = m * cost.cycle + tail
        rank = cost.weight, tail, cost.forward + cost.send_forward, cost.inputs + cost.send_backward
        both = max(max(begin, 0.0) + own, least_seconds(self.context, self.shape, self.nics[i], role, layers))
        return StageSeconds(begin, own, both, m * cost.busy, m * cost.lane, *rank, cost.forward + cost.inputs)

    @functools.cached_property
    def first_tail(self) -> float:
        """Least tail of the first stage over all sizes: buckets of more layers may hide more of the reduction, and so may a
        backward that recomputes all layers, unless the network with the gradients of every microbatch is busier."""
        every: list[tuple[int, ...]] = [()]
        if self.shape.recompute == BLOCK:
            every = [tuple(range(self.layers + 1)), *(every if self.config.reduces_each_microbatch else ())]
        return min(_least_tail(self, i, counts) for i in self.may_be_first for counts in every)

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


def _least_tail(stages: OrderedStages, i: int, recomputed: tuple[int, ...]) -> float:
    """The least tail of a first stage of class i over all sizes, with the number of recomputed layers of each; empty:
    none."""
    shared, sends, (largest, counts) = stages.order[i].shared, stages.sends(i, "first"), stages.tested(i, recomputed)
    key = "tail", type(stages).__name__, largest, *sends, stages.tied, counts
    if key not in shared:
        shared[key] = min(stages.only_tail(i, "first", counts, sends, layers) for layers in range(1, largest + 1))
    found: float = shared[key]
    return found
