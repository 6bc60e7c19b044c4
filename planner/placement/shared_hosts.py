"""How many stages of unlike degrees a target takes on hosts that they share.

FlagScale joins the stages on a host to one mesh, and connects a mesh of several stages and replicas with the next one in a
wrong order, so that only the last mesh may be one (`holmes_sim.exporters.flagscale`). The target of a request is asked about
small pipelines of two clusters."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from planner.placement.unlike_degrees import build_unlike
from planner.request import Request
from planner.space.shape import Shape
from planner.space.shapes import slots
from planner.space.unlike_degrees import are_unlike
from sim.errors import NoRoute, PlanError
from sim.hardware.cluster import Cluster

Own: TypeAlias = tuple[Cluster, Shape]
"""A cluster and the shape of its stages."""
MANY = 1 << 30
"""More stages than a pipeline has."""


class Most(NamedTuple):
    """Most stages of a shape on a cluster that a target takes where stages of other clusters follow, and where none do."""

    before: int
    last: int


ANY_NUMBER = Most(MANY, MANY)
"""Where the target does not limit them."""


class SharedHosts:
    """What the target of a request takes of stages that share hosts; it is asked once about each."""

    def __init__(self, request: Request):
        self._target, self._request = request.target, replace(request, target=None)
        self._tied = request.workload.model.tied_embeddings  # by stages of equal degrees, the first and the last one
        self._known: dict[tuple[str, int, int, int], Most] = {}

    def most(self, own: Own, others: Iterable[Own]) -> Most:
        """Most stages of `own`, beside stages of unlike degrees on other clusters.

        others: stages of other clusters with the same samples, which the pipeline may have. The target is asked about the first
        one of unlike degrees whose stages do not share hosts: all of them are joined alike."""
        cluster, shape = own
        if self._target is None or shape.dp == 1 or on_shared_hosts(own) == 1:
            return ANY_NUMBER
        key = cluster.name, shape.tp, shape.dp, shape.cp
        if key not in self._known:
            ends = 2 if self._tied else 1
            apart = (one for one in others if on_shared_hosts(one) == 1 and ends * one[1].slots <= slots(one[0], one[1].tp))
            other = next((one for one in apart if are_unlike((shape, one[1]))), None)
            if other is None:
                return ANY_NUMBER
            self._known[key] = self._asked(own, other)
        return self._known[key]

    def _asked(self, own: Own, other: Own) -> Most:
        few, ends = on_shared_hosts(own), [other] if self._tied else []
        before = self._takes([*ends, own, other]) and not self._takes([*ends, own, own, other])
        last = not self._tied and self._takes([other, *(own,) * few]) and not self._takes([other, *(own,) * (few + 1)])
        return Most(1 if before else MANY, few if last else MANY)

    def _takes(self, stages: Sequence[Own]) -> bool:
        """Whether the target takes a pipeline of these stages, whatever memory they need; True where there is none."""
        number = Counter(cluster.name for cluster, _ in stages)
        if any(number[cluster.name] * shape.slots > slots(cluster, shape.tp) for cluster, shape in stages):
            return True
        layers = [1] * (len(stages) - 1) + [self._request.workload.model.layers - len(stages) + 1]
        each = [(one.name, replace(shape, recompute="none"), own) for (one, shape), own in zip(stages, layers, strict=True)]
        with suppress(PlanError, NoRoute):
            return self._target is not None and not self._target.fault(build_unlike(self._request, each, "certified"))
        return True


def on_shared_hosts(own: Own) -> int:
    """Number of stages, one behind the other from the first device of a cluster on, until one begins at a host of its own."""
    cluster, shape = own
    return math.lcm(shape.slots, cluster.node.count // shape.tp) // shape.slots
