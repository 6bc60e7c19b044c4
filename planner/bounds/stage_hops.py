"""Least seconds of the messages between the stages of pipelines over node classes in an order."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import groupby, pairwise

from planner.costs.context import PlanningContext
from planner.costs.node_classes import NodeClass
from planner.placement.leaves import oversubscribed
from planner.space.shape import Shape
from sim.hardware.cluster import Cluster
from sim.units import Seconds


class StageHops:
    """Messages of stages whose number in their class is known, and with it their positions on nodes.

    A pipeline is given by the class of each stage, an index in `clusters`. On an oversubscribed fabric, other nodes may have
    other positions: then positions do not count. least: least seconds of a message inside each class, and over each border."""

    def __init__(
        self, context: PlanningContext, shape: Shape, clusters: Sequence[Cluster], nic: str,
        least: tuple[Sequence[Seconds], Sequence[Seconds]],
    ):  # fmt: skip
        self._context, self._shape, self._clusters, self._nic, self._least = context, shape, clusters, nic, least
        self._hops: dict[tuple[tuple[int, int], tuple[int, int]], Seconds] = {}
        self._runs: dict[tuple[int, int, int], list[Seconds]] = {}

    @functools.cached_property
    def _together(self) -> int:
        return self._context.messages.together(self._clusters, self._shape)

    @functools.cached_property
    def _knows_positions(self) -> bool:
        return not any(oversubscribed(cluster) for cluster in self._clusters)

    def between(self, classes: Sequence[int]) -> list[Seconds]:
        """Least seconds of the message between each two neighbouring stages."""
        if not self._knows_positions:
            inside, borders = self._least
            return [inside[a] if a == b else borders[a] for a, b in pairwise(classes)]
        runs, found = [(i, len(list(run))) for i, run in groupby(classes)], list[Seconds]()
        for (i, count), (following, _) in pairwise([*runs, (-1, 0)]):
            found += self._of_run(i, count, following)
        return found

    def _of_run(self, i: int, count: int, following: int) -> list[Seconds]:
        """Least seconds of the messages behind each of `count` stages of class i, the last one to the first stage of the class
        that follows; -1: none follows."""
        key = i, count, following
        if key not in self._runs:
            ends = [*((i, index) for index in range(count)), *([(following, 0)] if following >= 0 else [])]
            self._runs[key] = [self._hop(*pair) for pair in pairwise(ends)]
        return self._runs[key]

    def both(self, classes: Sequence[int]) -> list[Seconds]:
        """Seconds that the links of each stage need for the messages of both its neighbours together
        (`planner.bounds.stage_messages`); 0 where that is not known."""
        if not self._knows_positions:
            return self.none(classes)
        ends = [(self._clusters[i], index - classes.index(i)) for index, i in enumerate(classes)]
        inner = zip(ends, ends[1:], ends[2:], strict=False)
        found = (self._context.messages.both(*one, self._shape, self._nic, self._together) for one in inner)
        return [0.0, *found, 0.0][: len(ends)]

    @staticmethod
    def none(classes: Sequence[int]) -> list[Seconds]:
        """As `both` where no message is held."""
        return [0.0] * len(classes)

    def _hop(self, source: tuple[int, int], target: tuple[int, int]) -> Seconds:
        """Least seconds of the messages between two neighbouring stages (class, number of the stage in its class)."""
        if (source, target) not in self._hops:
            (a, i), (b, j) = source, target
            ends = (self._clusters[a], i), (self._clusters[b], j)
            to_and_fro = [(*here, *there) for here, there in (ends, ends[::-1])]
            hop = self._context.messages.hop
            self._hops[source, target] = min(hop(*each, self._shape, self._nic, self._together) for each in to_and_fro)
        return self._hops[source, target]


def least_messages(
    order: Sequence[NodeClass], inside: Sequence[Seconds], borders: Sequence[Seconds]
) -> tuple[list[Seconds], list[Seconds]]:
    """Least seconds of a message from a stage of each class to the next stage, and to the previous one.

    inside, borders: of a message inside each class, and over each border."""
    inner = [[message] if option.max_stages > 1 else [] for option, message in zip(order, inside, strict=True)]
    ahead = [min([*own, *borders[i : i + 1]], default=0.0) for i, own in enumerate(inner)]
    return ahead, [min([*own, *borders[max(i - 1, 0) : i]], default=0.0) for i, own in enumerate(inner)]
