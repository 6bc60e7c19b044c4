"""Seconds of the point-to-point messages between neighbouring stages, on an idle network."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import product

from planner.costs.fleet_views import FleetViews
from planner.costs.joint_arrivals import joint_seconds
from planner.costs.stage_positions import (
    End,
    Hop,
    alike_slots,
    first_apart,
    have_equal_nics,
    hops,
    nic_kinds,
    period,
    same_position,
)
from planner.request import Request
from planner.space.shape import Shape
from planner.space.shapes import stage_slots
from sim.errors import NoRoute
from sim.hardware.cluster import Cluster, Fleet
from sim.hardware.transport import joint_nics
from sim.kernels.payloads import message_bytes
from sim.network.alpha_beta import AlphaBeta
from sim.network.paths import Capacities
from sim.network.routes import message_route


class MessageCosts:
    """Seconds of messages between stages: of given stages (`hop`), and the least for any position of the stages (`least`)."""

    def __init__(self, request: Request, fleets: FleetViews):
        self._request, self._fleets = request, fleets
        self._hops: dict[tuple[object, ...], AlphaBeta] = {}
        self._links: dict[tuple[object, ...], tuple[AlphaBeta, ...]] = {}
        self._seconds: dict[tuple[object, ...], float] = {}
        self._both: dict[tuple[object, ...], float] = {}

    def together(self, clusters: Iterable[Cluster], shape: Shape, surely: bool = True) -> int:
        """How many slots of a stage send their messages at the same time as the first slot, and share links; 0: all.

        The replicas of a pipeline keep step where their stages have equal positions on nodes, and they have the same number of
        microbatches. That is so for all replicas where each stage fills whole nodes, or a node is filled by whole stages, and
        as many devices of a node share each NIC: of three devices with two NICs, the third sends faster and runs ahead. Else
        it is so for the first replicas as far as one node holds all of them at every stage (`alike_slots`): each other replica
        may run ahead, and then finds links free. Replicas with unequal numbers of microbatches, or NICs, keep step for most of
        a step, so this holds for an estimate, but not `surely`."""
        clusters, workload = tuple(clusters), self._request.workload
        divides = not surely or shape.divides(workload)
        widths = {cluster.node.count // shape.tp_on(cluster.name) for cluster in clusters}
        fill = not any(shape.slots % width and width % shape.slots for width in widths if width)
        if divides and fill and (not surely or have_equal_nics(clusters, shape)):
            return 0
        alike = alike_slots(clusters, shape)
        if divides:
            return alike
        microbatches = shape.microbatches_of_replicas(workload)
        return min(alike, microbatches.count(max(microbatches)) * shape.cp)

    def _able(self, shape: Shape) -> list[Cluster]:
        """Clusters with enough slots for a stage."""
        return [cluster for cluster in self._request.clusters() if stage_slots(cluster, shape) >= shape.slots]

    def least(
        self, source: Cluster, target: Cluster, shape: Shape, nic: str = "", clusters: tuple[Cluster, ...] = (),
        together: int | None = None,
    ) -> float:  # fmt: skip
        """Least seconds of a message between neighbouring stages on two clusters, whatever their positions on nodes.

        The message is that of the first rank of the first replica (`hop`). nic: its NIC type, or the fastest one that joins the
        two clusters; infinite where none does. clusters: those of the pipeline; if empty, any clusters. together: how many
        slots send at the same time, if not those of `together`. The result is a lower bound, with `together` an estimate; of
        both directions, where unlike tp makes them differ, because TCP limits what a device sends (`sim.network.tcp`)."""
        if together is None:
            together = self.together(clusters or self._able(shape), shape)
        ways = (
            [(source, target)] if shape.tp_on(source.name) == shape.tp_on(target.name) else [(source, target), (target, source)]
        )
        return min(self._least(*way, shape, nic, together) for way in ways)

    def _least(self, source: Cluster, target: Cluster, shape: Shape, nic: str, together: int) -> float:
        """`least` in one direction."""
        degrees = shape.tp_on(source.name), shape.tp_on(target.name)
        link = source.name, target.name, *degrees, shape.dp, shape.cp, nic, together
        key = *link, shape.microbatch_size
        if key not in self._seconds:
            if link not in self._links:
                self._links[link] = tuple(self._every(source, target, shape, nic, together))
            nbytes = message_bytes(self._request.workload, shape.config(self._request.workload, 2), max(degrees))
            self._seconds[key] = min((found.seconds(nbytes) for found in self._links[link]), default=math.inf)
        return self._seconds[key]

    def _every(self, source: Cluster, target: Cluster, shape: Shape, nic: str, together: int) -> Iterator[AlphaBeta]:
        """Message costs between neighbouring stages in every position, over every NIC type that can join them.

        A pipeline uses one NIC type. Its other clusters may exclude the fastest type of these two."""
        fleet, stages = self._fleets.open, stage_slots(source, shape) // shape.slots
        a, b = fleet.cluster(source.name), fleet.cluster(target.name)
        last = stages - 1 if source == target else stages
        ends = [(i, i + 1 if source == target else 0) for i in range(min(period(source, shape), last))]
        for (i, j), kind in product(ends, [nic] if nic else nic_kinds(fleet, source, target)):
            with suppress(NoRoute):
                messages = together * max(shape.tp_on(a.name), shape.tp_on(b.name))
                yield _first(fleet, hops(a, i, b, j, shape, kind), self._fleets.open_capacities, messages)

    def hop(self, source: Cluster, i: int, target: Cluster, j: int, shape: Shape, nic: str, together: int = 0) -> float:
        """Seconds of the message of the first rank from stage i of a cluster to stage j of a cluster.

        nic: the NIC type of messages between nodes. together: how many slots send at the same time and share links (0: all). A
        step takes at least as long as its first replica, so this is a lower bound for the message; where all replicas have
        equal positions, it is exact."""
        i, j = self._nearest(source, i, target, j, shape)
        degrees = shape.tp_on(source.name), shape.tp_on(target.name)
        key = source.name, i, target.name, j, *degrees, shape.dp, shape.cp, nic, together
        if key not in self._hops:
            between = hops(source, i, target, j, shape, nic)
            self._hops[key] = _first(self._fleets.fleet, between, self._fleets.capacities, together * max(degrees))
        config = shape.config(self._request.workload, 2)
        return self._hops[key].seconds(message_bytes(self._request.workload, config, max(degrees)))

    def both(self, before: End, here: End, behind: End, shape: Shape, nic: str, together: int = 0) -> float:
        """Seconds that the links of a stage need for the messages from the stages before and behind it, of the first replica
        and those that keep step with it (`joint_seconds`); 0 with unlike tp. nic, together: as in `hop`."""
        (cluster, index), others = here, (before, behind)
        key = *((one.name, i) for one, i in (before, here, behind)), shape.tp, shape.dp, shape.cp, nic, together
        if shape.cluster_tp:
            return 0.0
        if key not in self._both:
            ways = [
                [hop[:3] for hop in hops(*other, cluster, index, shape, nic)[: together * shape.tp or None]] for other in others
            ]
            self._both[key] = joint_seconds(self._fleets.fleet, self._fleets.capacities, *ways)
        return self._both[key] * message_bytes(self._request.workload, shape.config(self._request.workload, 2), shape.tp)

    def of_pipeline(
        self, ends: Sequence[End], shape: Shape, nic: str, together: int
    ) -> tuple[list[float], list[float]]:  # fmt: skip
        """Seconds of the messages of a pipeline with these stages (cluster, number of the stage on it), one for each pipeline
        rank: of each virtual stage to the next one, and to the previous one. nic, together: as in `hop`."""
        pp, last = len(ends), len(ends) * shape.vpp - 1

        def hop(source: int, target: int) -> float:
            return self.hop(*ends[source % pp], *ends[target % pp], shape, nic, together)

        ahead = [hop(s, s + 1) if s < last and pp > 1 else 0.0 for s in range(last + 1)]
        return ahead, [hop(s, s - 1) if s and pp > 1 else 0.0 for s in range(last + 1)]

    def of_both_sides(self, ends: Sequence[End], shape: Shape, nic: str, together: int) -> list[float]:
        """`both` of each stage of a pipeline, 0 at its ends."""
        inner = zip(ends, ends[1:], ends[2:], strict=False)
        return [0.0, *(self.both(*one, shape, nic, together) for one in inner), 0.0][: len(ends)]

    def _nearest(self, source: Cluster, i: int, target: Cluster, j: int, shape: Shape) -> tuple[int, int]:
        """The first stages of two clusters with the positions of stages i and j, on nodes and relative to each other."""
        if source != target:
            return same_position(i, source, shape, 0), same_position(j, target, shape, 0)
        if j == i + 1:
            first = same_position(i, source, shape, 0)
            return first, first + 1
        first, second = min(i, j), max(i, j)
        if first == 0:
            second = same_position(second, source, shape, first_apart(source, shape))
        return (first, second) if i < j else (second, first)

    def crossing(self, source: Cluster, others: list[Cluster], shape: Shape) -> float:
        """An estimate of the least seconds of a message of a stage on `source` in a pipeline that leaves the cluster.

        A pipeline group uses one NIC type that all its members have, so its messages inside the cluster use it too."""
        best = math.inf
        for other in others:
            for nic in joint_nics(self._fleets.fleet, (source.name, other.name)) if other != source else ():
                best = min(best, self.least(source, other, shape, nic.kind, together=0))
                if stage_slots(source, shape) >= 2 * shape.slots:
                    best = min(best, self.least(source, source, shape, nic.kind, together=0))
        return best


def _first(fleet: Fleet, between: list[Hop], capacities: Capacities, together: int) -> AlphaBeta:
    """AlphaBeta of the first message: on links that it shares with the first `together` messages, or with all (0)."""
    some, in_step = between[: together or None], not together
    routes = [
        message_route(fleet, a, b, "intra_node" if (a.cluster, a.node) == (b.cluster, b.node) else nic) for a, b, nic, _ in some
    ]
    (first,) = routes[0].legs
    load = dict.fromkeys((link for link, _ in first.use), 0.0)
    for route, (*_, many) in zip(routes, some, strict=True):
        for link, weight in route.legs[0].use:
            if link in load:
                load[link] += weight * (many if link[0] == "trunk" and in_step else 1)
    return AlphaBeta(routes[0].latency, max(weight / capacities(link) for link, weight in load.items()))
