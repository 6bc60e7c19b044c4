"""Seconds of the busiest link for all point-to-point messages of one microbatch, in both directions."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace

from planner.costs.cluster_costs import ClusterCosts
from planner.costs.fleet_views import FleetViews
from planner.costs.stage_positions import Hop, Stages, hops
from planner.space.shape import Shape
from planner.space.shapes import stage_slots
from sim.analytic.plan_costs import messages_alpha_beta
from sim.errors import NoRoute
from sim.hardware.cluster import Cluster, Fleet
from sim.kernels.payloads import message_bytes
from sim.network.alpha_beta import AlphaBeta
from sim.workload.workload import Workload


class MessageLoads:
    """Loads of the busiest link by the messages of pipelines; each is computed once for a request.

    A link carries the messages of m microbatches in m times its load or more. Loads leave out latency, because messages may
    overlap."""

    def __init__(self, workload: Workload, fleets: FleetViews, costs: ClusterCosts):
        self._workload, self._fleets, self._costs = workload, fleets, costs
        self._loads: dict[tuple[object, ...], AlphaBeta | None] = {}

    def load(self, runs: tuple[Stages, ...], shape: Shape, nic: str, fleet: Fleet, whole: bool = False) -> float:
        """Seconds of one microbatch's messages, in both directions, on the busiest link between neighbouring stages of a
        pipeline.

        runs: the stages in pipeline order. A node inside the pipeline sends activations to one side and gradients to the other.
        Of a long run, only the stages at both ends are computed, because the others repeat their positions. whole: the runs are
        the whole pipeline, which with virtual stages also sends from its last stage to its first."""
        vpp, times = (shape.vpp, 1) if whole else (1, shape.vpp)  # without the way back to the first stage, all vpp are equal
        key = (
            *((cluster.name, first, count) for cluster, first, count in runs),
            shape.tp,
            shape.cluster_tp,
            shape.dp,
            shape.cp,
            vpp,
            nic,
        )
        key = *key, whole, fleet is self._fleets.open
        if key not in self._loads:
            found: list[Hop] = []
            for index, (cluster, first, count) in enumerate(runs):
                near = 2 * len(self._costs.stages(cluster, shape))
                for i in range(first, first + count - 1):
                    if i < first + near or i >= first + count - 1 - near:
                        found += _hops(cluster, i, cluster, i + 1, shape, nic)
                if index + 1 < len(runs):
                    found += _hops(cluster, first + count - 1, runs[index + 1][0], runs[index + 1][1], shape, nic)
            found *= vpp
            if whole:
                (head, first, _), (cluster, last, count) = runs[0], runs[-1]
                found += _hops(cluster, last + count - 1, head, first, shape, nic) * (shape.vpp - 1)
            self._loads[key] = self._both_ways(fleet, found)
        return times * self._seconds(self._loads[key], shape)

    def whole_pipeline(self, runs: tuple[tuple[Cluster, int], ...], shape: Shape, nic: str) -> float:
        """`load` of a whole pipeline with (cluster, count) stages, from the first node of each cluster on."""
        return self.load(tuple((cluster, 0, count) for cluster, count in runs), shape, nic, self._fleets.fleet, True)

    def node_loads(self, cluster: Cluster, others: list[Cluster], shape: Shape) -> tuple[float, float]:
        """Least loads of a node of a cluster that has stages before and behind it, with one virtual stage each.

        Returns (least load in a pipeline inside the cluster, least load in one that leaves it); 0 where there is no such
        node."""
        positions = len(self._costs.stages(cluster, shape))
        stages = stage_slots(cluster, shape) // shape.slots
        if stages <= positions:
            return 0.0, 0.0
        inside = 0.0
        if stages > 2 * positions:
            one, nic = replace(shape, vpp=1), self._fleets.nic_of((cluster,))
            inside = self.load(((cluster, 0, min(3 * positions, stages)),), one, nic, self._fleets.open)
        crossing = math.inf
        for other in others:
            with suppress(NoRoute):
                if other != cluster:
                    crossing = min(crossing, self._beside(cluster, other, shape, self._fleets.nic_of((cluster, other))))
        return inside, crossing if math.isfinite(crossing) else 0.0

    def _beside(self, cluster: Cluster, other: Cluster, shape: Shape, nic: str) -> float:
        """Least load of a node between a node of its cluster and another cluster, over all positions of its end stages."""
        positions, there = len(self._costs.stages(cluster, shape)), len(self._costs.stages(other, shape))
        least = math.inf
        for last in range(positions, min(2 * positions, stage_slots(cluster, shape) // shape.slots)):
            for peer in range(there):
                key = cluster.name, last, other.name, peer, "beside", shape.tp, shape.cluster_tp, shape.dp, shape.cp, nic
                if key not in self._loads:
                    inner = [hop for i in range(positions - 1, last) for hop in _hops(cluster, i, cluster, i + 1, shape, nic)]
                    found = inner + _hops(cluster, last, other, peer, shape, nic)
                    self._loads[key] = self._both_ways(self._fleets.open, found)
                least = min(least, self._seconds(self._loads[key], shape))
        return least

    def _both_ways(self, fleet: Fleet, ahead: list[Hop]) -> AlphaBeta | None:
        """AlphaBeta of all messages and those back at once: what the busiest link needs for each byte, without latency."""
        every = [*ahead, *((target, source, nic, many) for source, target, nic, many in ahead)]
        if not every:
            return None
        pairs = tuple((source, target, nic) for source, target, nic, _ in every)
        capacities = self._fleets.capacities if fleet is self._fleets.fleet else self._fleets.open_capacities
        return replace(messages_alpha_beta(fleet, pairs, capacities, tuple(many for *_, many in every)), latency=0.0)

    def _seconds(self, load: AlphaBeta | None, shape: Shape) -> float:
        nbytes = message_bytes(self._workload, shape.config(self._workload, 2))
        return load.seconds(nbytes) if load is not None else 0.0


def _hops(source: Cluster, i: int, target: Cluster, j: int, shape: Shape, nic: str) -> list[Hop]:
    """The messages of a hop, as many of `shape.tp` slices each as they have: narrower stages send fewer and larger ones."""
    return hops(source, i, target, j, shape, nic) * (shape.tp // max(shape.tp_on(source.name), shape.tp_on(target.name)))
