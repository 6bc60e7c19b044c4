"""Seconds of the all-reduce of a tied embedding's gradient between the first and the last stage of a pipeline."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace
from itertools import product

from planner.costs.cluster_costs import ClusterCosts
from planner.costs.fleet_views import FleetViews
from planner.costs.stage_positions import first_apart, hops, nic_kinds, period, same_position
from planner.space.shape import Shape
from sim.errors import NoRoute
from sim.hardware.cluster import Cluster
from sim.kernels.payloads import tied_bytes
from sim.network.alpha_beta import AlphaBeta, protocol_costs
from sim.network.routes import member
from sim.workload.workload import Workload


class TiedEmbeddingCosts:
    """Seconds of the tied embedding's all-reduce; 0 where the embedding is not tied."""

    def __init__(self, workload: Workload, fleets: FleetViews, cluster_costs: ClusterCosts):
        self._workload, self._fleets, self._cluster_costs = workload, fleets, cluster_costs
        self._costs: dict[tuple[object, ...], tuple[AlphaBeta, ...]] = {}

    def seconds(self, first: Cluster, last: Cluster, index: int, shape: Shape, nic: str) -> float:
        """Seconds between stage 0 of cluster `first` and stage `index` of cluster `last`, the last stage; as
        `sim.analytic.plan_costs.tied_seconds` where ranks reduce gradients at unlike speeds.

        nic: the NIC type where the two stages are on different nodes. Raises NoRoute."""
        nbytes = self._bytes(first, last, shape)
        if not nbytes:
            return 0.0
        together = self._reduce_together(first, last, shape)
        if together is None:
            return 0.0
        return min(one.seconds(nbytes) for one in self._protocols(first, last, index, shape, nic, together))

    def least(self, first: Cluster, last: Cluster, shape: Shape, most: int, nic: str = "") -> float:
        """The least `seconds` over all positions of the last stage, with up to `most` stages on its cluster.

        nic: the NIC type; if empty, the fastest one. Infinite where no NIC type joins the two clusters."""
        least, nbytes = math.inf, self._bytes(first, last, shape)
        if not nbytes:
            return 0.0
        together = self._reduce_together(first, last, shape)
        fewest = 1 if first == last else 0  # a pipeline of one stage needs no all-reduce
        indices = range(fewest, min(most, first_apart(first, shape) + period(last, shape)))
        for index, kind in product(indices, [nic] if nic else nic_kinds(self._fleets.fleet, first, last)):
            if together is None:
                return 0.0
            with suppress(NoRoute):
                found = self._protocols(first, last, index, shape, kind, together)
                least = min(least, *(one.seconds(nbytes) for one in found))
        return least

    def _bytes(self, first: Cluster, last: Cluster, shape: Shape) -> float:
        wider = max(first.name, last.name, key=shape.tp_on)
        return tied_bytes(self._workload, shape.on(wider).config(self._workload, 2))

    def _protocols(
        self, first: Cluster, last: Cluster, index: int, shape: Shape, nic: str, together: bool
    ) -> tuple[AlphaBeta, ...]:
        """AlphaBeta of the all-reduce of all ranks `together`, or of those of each, by protocol."""
        index = same_position(index, last, shape, first_apart(first, shape) if first == last else 0)
        key = first.name, last.name, index, shape.tp_on(first.name), shape.tp_on(last.name), shape.dp, shape.cp, nic, together
        if key not in self._costs:
            fleet = self._fleets.open
            a, b = (fleet.cluster(cluster.name) for cluster in (first, last))
            pairs = hops(a, 0, b, index, shape, nic)
            ends = tuple(member((x, y), nic, "ring") for x, y, *_ in pairs)
            times = tuple(many for *_, many in pairs)
            sides = [(ends, times)] if together else [((end,), ()) for end in dict.fromkeys(ends)]
            self._costs[key] = tuple(
                replace(protocol.cost, latency=min(route.latency for route in protocol.routes))
                for members, copies in sides
                for protocol in protocol_costs(fleet, members, "all_reduce", self._fleets.open_capacities, copies)
            )
        return self._costs[key]

    def _reduce_together(self, first: Cluster, last: Cluster, shape: Shape) -> bool | None:
        """Whether all ranks of each stage of two clusters take equally long to reduce gradients; None where they do not and
        weights are gathered after the sum, which then may take no time."""
        every = (costs for cluster in (first, last) for costs in self._cluster_costs.collectives(cluster, shape))
        if all(costs.reduce_together for costs in every):
            return True
        return False if shape.config(self._workload, 2).gathers_ahead else None
