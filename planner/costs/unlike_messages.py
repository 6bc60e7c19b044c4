"""Least seconds of messages between stages of two clusters that have degrees of their own (`planner.space.unlike_degrees`).

All ranks of a stage have the same samples together, so the ranks of both stages send and receive equally many bytes in all, in
equal parts. The message of one microbatch takes at least as long as either side needs for its own part of it, and a trunk
between both. Where every stage of a pipeline fills whole nodes, or whole stages a node, and devices share NICs evenly, all
ranks of a stage keep step, and a NIC carries the parts of all its devices at once. Elsewhere a rank may run ahead of others and
find links free: then the part of one rank alone counts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from planner.costs.context import PlanningContext
from planner.costs.node_classes import NodeClass
from planner.costs.stage_positions import have_equal_nics
from planner.space.shape import Shape
from planner.space.shapes import slot
from sim.errors import NoRoute
from sim.hardware.cluster import Cluster
from sim.hardware.transport import joint_nics
from sim.kernels.payloads import message_bytes
from sim.network.alpha_beta import route_loads
from sim.network.paths import LinkName
from sim.network.routes import message_route
from sim.units import Bytes, Seconds


class Side(NamedTuple):
    """What the messages of the first devices of a node need of the links on their side: seconds for each byte of every device
    as the source and as the target, seconds of a trunk for each byte, the latency of a message in seconds, and seconds of all
    NICs together for each byte of a single device."""

    source: Seconds
    target: Seconds
    trunk: Seconds
    latency: Seconds
    nics: Seconds


class UnlikeMessages:
    """Least seconds of messages between stages of unlike degrees; what does not depend on their bytes is computed once."""

    def __init__(self, context: PlanningContext):
        self._context = context
        self._sides: dict[tuple[str, str, int, str], Side | None] = {}
        self._kinds: dict[tuple[str, str], tuple[str, ...]] = {}
        self._in_step: dict[tuple[str, int, int], bool] = {}
        self._leaving: dict[tuple[str, str], tuple[tuple[Seconds, int], ...]] = {}

    def between(self, classes: Sequence[Sequence[NodeClass]]) -> list[list[Seconds]]:
        """Least seconds of a message from a stage of each class to a neighbouring one of each class, in pipelines on all of
        them; infinite where the two cannot be neighbours: without a route, or of a class with a single stage.

        classes: the shapes that a class may have, all of equally many ranks and samples."""
        in_step = all(self._keeps_step(option) for every in classes for option in every)
        names = [every[0].cluster.name for every in classes]
        return [
            [self._inside(a, names, in_step) if a is b else self._border(a[0], b[0], in_step) for b in classes] for a in classes
        ]

    def leaving(self, option: NodeClass, others: Sequence[Cluster]) -> Seconds:
        """Least seconds of the NICs of a node for each message that one of its ranks sends to another node, in a pipeline with
        stages on other clusters, too: all NICs of the node share the messages of a microbatch. Links of a device alone do not
        count, such as PCIe and its TCP connections: others send at the same time."""
        cluster, nbytes = option.cluster, self._bytes(option) / ranks_of(option.own)
        found = (nbytes * seconds / count for other in others for seconds, count in self._leaving_over(cluster, other))
        return min(found, default=0.0)

    def _leaving_over(self, cluster: Cluster, other: Cluster) -> tuple[tuple[Seconds, int], ...]:
        """For each type of NICs that joins two clusters: seconds of all of them for each byte of a device, and their number."""
        key = cluster.name, other.name
        if key not in self._leaving:
            nics = joint_nics(self._context.fleets.open, key)
            sides = ((self._side(cluster, other, 1, nic.kind), nic.count) for nic in nics)
            self._leaving[key] = tuple((side.nics, count) for side, count in sides if side is not None)
        return self._leaving[key]

    def _inside(self, every: Sequence[NodeClass], names: Sequence[str], in_step: bool) -> Seconds:
        """A pipeline uses one type of NICs, which joins the class to the others of these names."""
        cluster, context = every[0].cluster, self._context
        able = [option.own for option in every if option.max_stages > 1]
        others = [name for name in names if name != cluster.name and able]
        kinds = dict.fromkeys(kind for name in others for kind in self._joint(cluster.name, name))
        least, together = context.messages.least, 0 if in_step else 1
        every_way = (least(cluster, cluster, own, kind, (cluster,), together) for own in able for kind in kinds)
        return min(every_way, default=math.inf)

    def _border(self, a: NodeClass, b: NodeClass, in_step: bool) -> Seconds:
        """The least of both directions, which differ where TCP limits what a device sends (`sim.network.tcp`)."""
        kinds, ways = self._joint(a.cluster.name, b.cluster.name), ((a, b), (b, a))
        return min((self._over(*way, kind, in_step) for kind in kinds for way in ways), default=math.inf)

    def _joint(self, a: str, b: str) -> tuple[str, ...]:
        """Types of NICs that join two clusters."""
        if (a, b) not in self._kinds:
            self._kinds[a, b] = tuple(nic.kind for nic in joint_nics(self._context.fleets.open, (a, b)))
        return self._kinds[a, b]

    def _keeps_step(self, option: NodeClass) -> bool:
        """Whether all ranks of a stage send at the same time if they do so at the stages beside it: it fills whole nodes, or
        whole stages fill a node, and its devices share NICs evenly."""
        key = option.cluster.name, option.own.tp, option.own.slots
        if key not in self._in_step:
            ranks, count = ranks_of(option.own), option.cluster.node.count
            even = not (ranks % count and count % ranks)
            self._in_step[key] = even and have_equal_nics((option.cluster,), option.own)
        return self._in_step[key]

    def _over(self, a: NodeClass, b: NodeClass, kind: str, in_step: bool) -> Seconds:
        """Least seconds of a message from a stage of `a` to one of `b` over one type of NICs."""
        total = self._bytes(a)
        devices = [min(ranks_of(option.own), option.cluster.node.count) if in_step else 1 for option in (a, b)]
        source = self._side(a.cluster, b.cluster, devices[0], kind)
        target = self._side(b.cluster, a.cluster, devices[1], kind)
        if source is None or target is None:
            return math.inf
        ranks = ranks_of(a.own), ranks_of(b.own)
        trunk = total / (1 if in_step else max(ranks))
        seconds = max(source.source * total / ranks[0], target.target * total / ranks[1], source.trunk * trunk)
        return source.latency + seconds

    def _bytes(self, option: NodeClass) -> Bytes:
        """Bytes of one microbatch that all ranks of a stage send to the next one together."""
        return message_bytes(option.workload, option.config) * ranks_of(option.own)

    def _side(self, here: Cluster, there: Cluster, devices: int, kind: str) -> Side | None:
        """The side of a cluster whose first `devices` devices exchange messages with one of another; None without a route."""
        key = here.name, there.name, devices, kind
        if key not in self._sides:
            self._sides[key] = None
            with suppress(NoRoute):
                self._sides[key] = self._computed(here, there, devices, kind)
        return self._sides[key]

    def _computed(self, here: Cluster, there: Cluster, devices: int, kind: str) -> Side:
        fleets = self._context.fleets
        ends, other = [slot(here, 1, index)[0] for index in range(devices)], slot(there, 1, 0)[0]
        ahead = tuple(message_route(fleets.open, end, other, kind) for end in ends)
        back = tuple(message_route(fleets.open, other, end, kind) for end in ends)
        source, target, one = (route_loads(routes, fleets.open_capacities) for routes in (ahead, back, ahead[:1]))
        trunk = max((seconds for link, seconds in one.items() if link[0] == "trunk"), default=0.0)
        latency = min(route.latency for route in ahead)
        alone = route_loads(back[:1], fleets.open_capacities)
        nics = max(sum(load for link, load in loads.items() if link[:2] == ("nic", here.name)) for loads in (one, alone))
        return Side(_busiest(source, here), _busiest(target, here), trunk, latency, nics)


def _busiest(loads: Mapping[LinkName, Seconds], cluster: Cluster) -> Seconds:
    """The largest load of a link of a cluster's nodes."""
    return max((seconds for link, seconds in loads.items() if link[0] != "trunk" and link[1] == cluster.name), default=0.0)


def ranks_of(shape: Shape) -> int:
    """Number of ranks of a stage."""
    return shape.tp * shape.slots
