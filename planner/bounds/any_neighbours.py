"""What holds for stages whose classes may follow one another in any order: messages, and the layers before a stage."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from planner.costs.context import PlanningContext
from planner.costs.node_classes import NodeClass
from sim.hardware.transport import joint_nics


class Free(NamedTuple):
    """What holds for a stage if all stages before it are on some free classes, one value for each class of the stage.

    outside: least seconds of its message to a stage of another free class; inside: of that class or its own; both infinite
    where there is none. hop: least seconds of a message between two stages before it. stages: how many these are at most.
    by_rate: as `ordered_stages.Before.by_rate`."""

    outside: list[float]
    inside: list[float]
    hop: list[float]
    stages: list[int]
    by_rate: list[list[list[tuple[float, int]]]]


class Neighbours:
    """The classes that may be beside a stage.

    between: least seconds of a message from a stage of each class to a neighbour of each class (`messages_between`); counts:
    most stages of each class; rates: as `OrderedStages.rates`."""

    def __init__(self, between: list[list[float]], counts: Sequence[int], rates: Sequence[tuple[float, ...]]):
        self.between, self._counts = between, counts
        self._by_rate = [sorted((rate[which], c) for c, rate in enumerate(rates)) for which in (0, 1, 2)]
        self._free: dict[tuple[int, ...], Free] = {}

    def before(self, free: tuple[int, ...]) -> Free:
        """What holds if all stages before a stage are on these classes."""
        if free not in self._free:
            classes = range(len(self.between))
            outside = [min((self.between[i][b] for b in free if b != i), default=math.inf) for i in classes]
            inside = [min(self.between[i][i], outside[i]) for i in classes]
            hop = min(inside[i] for i in free)
            stages = sum(self._counts[i] for i in free)
            by_rate = [[[pair for pair in pairs if pair[1] in free]] * len(classes) for pairs in self._by_rate]
            hops = [hop if math.isfinite(hop) else 0.0 for _ in classes]
            self._free[free] = Free(outside, inside, hops, [stages for _ in classes], by_rate)
        return self._free[free]


def messages_between(context: PlanningContext, classes: Sequence[NodeClass]) -> list[list[float]]:
    """Least seconds of a message from a stage of each class to a neighbouring one of each class, in pipelines on two classes or
    more, over all positions and all types of NICs.

    Infinite where the two cannot be neighbours: without a route, or of a class with a single stage. A pipeline uses one type of
    NICs, so messages inside a class use one that joins it to another class."""
    shape, least = classes[0].shape, context.messages.least

    def inside(a: NodeClass) -> float:
        others = [b.cluster.name for b in classes if b is not a and a.max_stages > 1]
        joint = {nic.kind for name in others for nic in joint_nics(context.fleets.open, (a.cluster.name, name))}
        return min((least(a.cluster, a.cluster, shape, kind) for kind in joint), default=math.inf)

    return [[inside(a) if a is b else least(a.cluster, b.cluster, shape) for b in classes] for a in classes]


def least_tied(context: PlanningContext, classes: Sequence[NodeClass]) -> float:
    """Least seconds of the tied embedding's all-reduce between the first and the last stage, which may be on any classes; 0
    where the embedding is not tied."""
    shape, layers = classes[0].shape, classes[0].workload.model.layers
    most = min(max(option.max_stages for option in classes), layers)
    ends = ((a, b) for a in classes for b in classes if a is not b or a.max_stages > 1)
    every = (context.tied.least(a.cluster, b.cluster, shape, most) for a, b in ends)
    return min(filter(math.isfinite, every), default=0.0)


def rates_of(option: NodeClass) -> tuple[float, float, float]:
    """`planner.bounds.ordered_stages.OrderedStages.rates` of one class: neither messages nor the ZeRO stage matter."""
    if ("rates",) not in option.shared:
        one, two = (option.with_messages("middle", layers, 0.0, 0.0) for layers in (1, 2))
        forward, inputs = two.forward - one.forward, two.inputs - one.inputs
        option.shared["rates",] = forward, forward + inputs, inputs
    rates: tuple[float, float, float] = option.shared["rates",]
    return rates
