"""Lower bounds on the step of pipelines in which each cluster has degrees of its own (`planner.space.unlike_degrees`).

Idea. A stage has its costs and memory by its own degrees, and all stages have the same samples of a microbatch. So the deadline
test of all orders of the classes (`planner.bounds.any_order`) holds, if each class has a shape of its own, and a message over a
border of clusters takes what the ranks of both sides need (`planner.costs.unlike_messages`). The collective of a tied embedding
is left out. The messages that leave a node must pass its NICs, two for each microbatch where there are stages before and behind
it, so a cluster has no more stages than a node has room for where these alone take too long.

A cluster has many shapes, and clusters have far more combinations of them. Shapes of a cluster whose stages have equally many
ranks differ little, so they are tested together first (`SomeShapes`), with the least seconds and the most layers in memory of
any of them. No pipeline that has one of them is faster."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Self, TypeAlias

from planner.bounds.any_neighbours import Neighbours, rates_of
from planner.bounds.any_order import AnyOrder
from planner.bounds.deadline_test import deadline_bound
from planner.bounds.node_messages import INSIDE, least_sent, most_sent
from planner.bounds.ordered_stages import OrderedStages
from planner.bounds.relaxation import ONE_MICROBATCH, Pace, filled_and_drained, in_any_order
from planner.bounds.stage_hops import StageHops, least_messages
from planner.bounds.stage_messages import Sends
from planner.bounds.stage_sizes import StageSeconds
from planner.costs.context import PlanningContext
from planner.costs.least_memory import LeastMemory
from planner.costs.node_classes import NodeClass, under
from planner.costs.unlike_messages import UnlikeMessages, ranks_of
from planner.placement.shared_hosts import ANY_NUMBER, Most
from planner.space.shapes import overlaps
from sim.field_changes import changed
from sim.hardware.cluster import Cluster
from sim.units import Seconds


class SomeShapes(NodeClass):
    """Classes of one cluster of which a pipeline has one: their stages have equally many ranks and samples.

    It has what the deadline test asks of a class, and each value is the best of any of them. taken: most stages of each."""

    def __init__(self, classes: Sequence[NodeClass], taken: Sequence[Most] = ()):
        first, self.classes, self._each = classes[0], tuple(classes), tuple(taken) or (ANY_NUMBER,) * len(classes)
        self._taken = Most(*map(max, zip(*self._each, strict=True)))
        self.cluster, self.shape, self.own, self.workload = first.cluster, first.shape, first.own, first.workload
        self.microbatches, self.waits, self.splits = first.microbatches, first.waits, first.splits
        self.max_stages = min(max(option.max_stages for option in classes), max(self._taken))
        self.memory = LeastMemory([option.memory for option in classes])
        self.shared = {}
        self._fewer: dict[int, SomeShapes] = {}
        self._late: SomeShapes | None = None

    @property
    def on_nodes(self) -> tuple[int, int]:
        """Ranks of a stage, and devices of a node that have ranks, as `planner.bounds.node_messages` takes them."""
        return ranks_of(self.own), self.cluster.node.count // self.own.tp * self.own.tp

    @property
    def must_be_last(self) -> bool:
        """Whether only at the end of a pipeline there may be as many stages as it has at most."""
        return self._taken.before < self.max_stages

    def takes(self, stages: int, is_last: bool) -> bool:
        """Whether so many stages may be there, at the end of a pipeline or before others."""
        return stages <= (self._taken.last if is_last else self._taken.before)

    def of(self, option: NodeClass) -> SomeShapes:
        """One of its classes alone, with as many stages at most."""
        return SomeShapes([option], [self._each[self.classes.index(option)]])

    def before_others(self) -> SomeShapes:
        """The same classes before stages of other clusters."""
        return self.with_most(self._taken.before)

    def with_most(self, stages: int) -> SomeShapes:
        """The same classes with so many stages at most."""
        if stages >= self.max_stages:
            return self
        if stages not in self._fewer:
            fewer = [Most(min(one.before, stages), min(one.last, stages)) for one in self._each]
            self._fewer[stages] = SomeShapes(self.classes, fewer)
        return self._fewer[stages]

    def gathering_late(self, context: PlanningContext) -> SomeShapes:
        """The same classes with weights gathered after the optimizer."""
        if self._late is None:
            late = [under(context, changed(option.own, overlap_param_gather=False), [option])[0] for option in self.classes]
            self._late = SomeShapes(late, self._each)
        return self._late

    @functools.cached_property
    def layer_seconds(self) -> Seconds:
        """Seconds of one microbatch on one layer, forward and backward."""
        return min(option.layer_seconds for option in self.classes)

    @functools.cached_property
    def capacity(self) -> int:
        """Most layers that all of its stages together hold beside one microbatch each."""
        return self.max_stages * self.memory.most_layers("middle", ONE_MICROBATCH)

    @functools.cached_property
    def pace(self) -> Pace:
        """The pace of its stages (`planner.bounds.relaxation`)."""
        return 1 / self.layer_seconds, min(option.waited_for * option.layer_seconds for option in self.classes)


Layout: TypeAlias = tuple[SomeShapes, ...]
"""The shapes that the stages of each cluster of a pipeline may have."""


def at_both_times(context: PlanningContext, layout: Layout) -> list[Layout]:
    """The layout with weights gathered before the forwards and, where that may differ, after the optimizer."""
    differ = any(len(overlaps(option.own)) > 1 for some in layout for option in some.classes)
    return [layout, tuple(some.gathering_late(context) for some in layout)] if differ else [layout]


def quick_bound(layout: Layout) -> Seconds:
    """A lower bound in seconds on pipelines of a layout by work, fill and drain, with fractional layers; infinite where memory
    has no room for all layers."""
    layers = layout[0].workload.model.layers
    if sum(some.capacity for some in layout) < layers:
        return math.inf
    paces = in_any_order(some.pace for some in layout for _ in range(min(some.max_stages, layers)))
    return filled_and_drained(layers, layout[0].microbatches, paces)


def message_bound(layout: Layout, messages: UnlikeMessages) -> Seconds:
    """A lower bound in seconds on pipelines with a stage on each cluster of a layout, by the NICs that messages pass."""
    each = list(zip(layout, leaving(layout, messages), strict=True))
    at_end, inside = (
        [load * min(sent(*some.on_nodes, stages) for stages in range(1, some.max_stages + 1)) for some, load in each]
        for sent in (least_sent, functools.partial(most_sent, place=INSIDE))
    )
    clusters = range(len(layout))
    ends = itertools.combinations(clusters, 2)
    return layout[0].microbatches * min(max(at_end[i] if i in end else inside[i] for i in clusters) for end in ends)


def below(layout: Layout, messages: UnlikeMessages, deadline: Seconds) -> Layout:
    """The same layout without the largest numbers of stages with which messages alone take as long as a deadline."""
    most, found = deadline / layout[0].microbatches, list[SomeShapes]()
    for some, load in zip(layout, leaving(layout, messages), strict=True):
        able = (stages for stages in range(some.max_stages, 1, -1) if load * least_sent(*some.on_nodes, stages) < most)
        found.append(some.with_most(next(able, 1)))
    return tuple(found)


def leaving(layout: Layout, messages: UnlikeMessages) -> list[Seconds]:
    """Least seconds of the NICs of a node of each cluster for each message that leaves it (`UnlikeMessages.leaving`)."""
    every = [some.cluster for some in layout]
    return [messages.leaving(some.classes[0], every[:i] + every[i + 1 :]) for i, some in enumerate(layout)]


def layout_bound(
    context: PlanningContext, layout: Layout, messages: UnlikeMessages, least: Seconds, cutoff: Seconds
) -> Seconds:
    """A lower bound in seconds on pipelines with a stage on each cluster of a layout: at least `least`, and at most the larger
    of `least` and `cutoff` (`planner.bounds.deadline_test.deadline_bound`)."""
    both = at_both_times(context, layout)
    return deadline_bound(
        (AnyOrder(one, UnlikeStages(context, one, messages, cutoff).in_any_order()) for one in both), least, cutoff
    )


class UnlikeStages(OrderedStages):
    """Stages of pipelines in any order, of which those of each cluster have one of some shapes of their own."""

    def __init__(self, context: PlanningContext, layout: Layout, messages: UnlikeMessages, horizon: Seconds):
        self.layout, self._unlike = layout, messages
        super().__init__(context, layout, horizon)

    def in_any_order(self) -> Self:
        """The same stages with numbers that hold for every order of every subset of two or more of the classes."""
        between = self._unlike.between([some.classes for some in self.layout])
        self.neighbours = Neighbours(between, self.max_stages, self.rates)
        least = [min(filter(math.isfinite, row), default=0.0) for row in between]
        self.messages, self.borders = least, [min(least)] * (len(least) - 1)
        self.possible, self.may_be_first = True, range(len(least))
        self._ahead, self._back, self._sends = least, least, {}
        return self

    def in_order(self) -> Self:
        """The same stages with numbers that hold for the given order of all classes."""
        classes = range(len(self.layout))
        between = self._unlike.between([some.classes for some in self.layout])
        self.messages = [between[i][i] if math.isfinite(between[i][i]) else 0.0 for i in classes]
        self.borders = [between[i][i + 1] for i in classes[:-1]]
        self.hops, self.both = self._hops_between, StageHops.none
        self._ahead, self._back = least_messages(self.order, self.messages, self.borders)
        self.possible, self._sends = all(map(math.isfinite, self.borders)), {}
        return self

    def _hops_between(self, classes: Sequence[int]) -> list[Seconds]:
        """Least seconds of the message between each two neighbouring stages of these classes."""
        return [self.messages[a] if a == b else self.borders[a] for a, b in itertools.pairwise(classes)]

    def _nic_kind(self) -> str:
        """None: each border may have its own."""
        return ""

    def _message(self, source: Cluster, target: Cluster) -> Seconds:
        """0: `in_any_order` and `in_order` say what messages take."""
        return 0.0

    def _seconds(self, i: int, role: str, recomputed: tuple[int, ...], sends: Sends, layers: int) -> StageSeconds:
        """The least seconds under any of the shapes, and the longest weight gradient, which may be deferred."""
        again = recomputed[layers] if recomputed else 0
        every = [self._under(option, role, again, sends, layers) for option in self.layout[i].classes]
        return StageSeconds(*map(min, zip(*every, strict=True)))._replace(weight=max(one.weight for one in every))

    def only_tail(self, i: int, role: str, recomputed: tuple[int, ...], sends: Sends, layers: int) -> Seconds:
        """The least under any of the shapes."""
        again = recomputed[layers] if recomputed else 0
        ahead, back, _ = sends
        every = (option.with_messages(role, layers, ahead, back, again) for option in self.layout[i].classes)
        return min(cost.tail(option.config) for cost, option in zip(every, self.layout[i].classes, strict=True))

    def _under(self, option: NodeClass, role: str, again: int, sends: Sends, layers: int) -> StageSeconds:
        cost = option.with_messages(role, layers, sends.ahead, sends.back, again)
        begin, tail = cost.begin(-math.inf, option.config), cost.tail(option.config)
        busy = self.m * cost.busy + sends.held.seconds(cost.both, cost.backward)
        own = max(self.m * cost.cycle, busy) + tail
        passes = cost.forward + cost.send_forward, cost.inputs + cost.send_backward, cost.forward + cost.inputs
        return StageSeconds(begin, own, max(begin, 0.0) + own, busy, self.m * cost.lane, cost.weight, tail, *passes)

    @functools.cached_property
    def rates(self) -> list[tuple[float, float, float]]:
        """As `OrderedStages.rates`, the least of any of the shapes."""
        found = []
        for some in self.layout:
            forward, both, inputs = map(min, zip(*map(rates_of, some.classes), strict=True))
            found.append((forward, both, inputs))
        return found
