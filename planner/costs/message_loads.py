"""Seconds of the busiest link for all point-to-point messages of one microbatch, in both directions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from planner.costs.cluster_costs import ClusterCosts
from planner.costs.fleet_views import FleetViews
from planner.costs.stage_positions import End, Stages, hops
from planner.space.shape import Shape
from planner.space.shapes import stage_slots
from sim.errors import NoRoute
from sim.hardware.cluster import Cluster, Fleet
from sim.kernels.payloads import message_bytes
from sim.network.alpha_beta import route_loads
from sim.network.paths import LinkName
from sim.network.routes import message_route
from sim.units import Seconds
from sim.workload.workload import Workload

Use: TypeAlias = Mapping[LinkName, Seconds]
"""Link -> the seconds that it needs for each byte of a message."""


class Links(NamedTuple):
    """What messages need of their links, and the most that they need of one."""

    use: Use
    most: Seconds


class MessageLoads:
    """Loads of the busiest link by the messages of pipelines; each is computed once for a request.

    A link carries the messages of m microbatches in m times its load or more. Loads leave out latency, because messages may
    overlap."""

    def __init__(self, workload: Workload, fleets: FleetViews, costs: ClusterCosts):
        self._workload, self._fleets, self._costs = workload, fleets, costs
        self._loads: dict[tuple[object, ...], Seconds] = {}
        self._runs: dict[tuple[object, ...], Links] = {}
        self._hops: dict[tuple[object, ...], tuple[Use, Use]] = {}
        self._nbytes: dict[Shape, float] = {}

    def load(self, runs: tuple[Stages, ...], shape: Shape, nic: str, fleet: Fleet, whole: bool = False) -> Seconds:
        """Seconds of one microbatch's messages, in both directions, on the busiest link between neighbouring stages of a
        pipeline.

        runs: the stages in pipeline order. A node inside the pipeline sends activations to one side and gradients to the other.
        Of a long run, only the stages at both ends are computed, because the others repeat their positions. whole: the runs are
        the whole pipeline, which with virtual stages also sends from its last stage to its first."""
        way = shape.tp, shape.cluster_tp, shape.dp, shape.cp, nic, fleet is self._fleets.open
        vpp = shape.vpp if whole else 1  # without the way back to the first stage, all vpp are equal
        key = *((cluster.name, first, count) for cluster, first, count in runs), *way, vpp
        if key not in self._loads:
            inside = [self._run(run, shape, nic, fleet, way) for run in runs]
            borders = [
                self._hop((here, first + count - 1), (there, other), shape, nic, fleet, way)
                for (here, first, count), (there, other, _) in pairwise(runs)
            ]
            (head, first, _), (cluster, last, count) = runs[0], runs[-1]
            if vpp > 1:  # divided by vpp, as all other messages count once
                back = self._hop((cluster, last + count - 1), (head, first), shape, nic, fleet, way)
                borders.append({link: seconds * (vpp - 1) / vpp for link, seconds in back.items()})
            self._loads[key] = _most(inside, borders)
        return shape.vpp * self._loads[key] * self.bytes(shape)

    def _run(self, run: Stages, shape: Shape, nic: str, fleet: Fleet, way: tuple[object, ...]) -> Links:
        """What the messages inside a run need. `way`: what they depend on, beside the run."""
        cluster, first, count = run
        key = cluster.name, first, count, *way
        if key not in self._runs:
            near = 2 * len(self._costs.stages(cluster, shape))
            stages = (i for i in range(first, first + count - 1) if i < first + near or i >= first + count - 1 - near)
            use = _sum(self._hop((cluster, i), (cluster, i + 1), shape, nic, fleet, way) for i in stages)
            self._runs[key] = Links(use, max(use.values(), default=0.0))
        return self._runs[key]

    def _hop(self, source: End, target: End, shape: Shape, nic: str, fleet: Fleet, way: tuple[object, ...]) -> Use:
        """What the messages between two stages need, there and back. Raises NoRoute.

        There are `shape.tp` slices of each message: narrower stages send fewer and larger ones."""
        return _sum(self._ways(source, target, shape, nic, fleet, way))

    def ways(self, source: End, target: End, shape: Shape, nic: str) -> tuple[Use, Use]:
        """What the messages of a whole pipeline from a stage to another one need, and what those back need. Raises NoRoute."""
        way = shape.tp, shape.cluster_tp, shape.dp, shape.cp, nic, False
        return self._ways(source, target, shape, nic, self._fleets.fleet, way)

    def _ways(self, source: End, target: End, shape: Shape, nic: str, fleet: Fleet, way: tuple[object, ...]) -> tuple[Use, Use]:
        """What the messages from a stage to another one need, and what those back need. Raises NoRoute."""
        (here, i), (there, j) = source, target
        key = here.name, i, there.name, j, *way
        if key not in self._hops:
            capacities = self._fleets.capacities if fleet is self._fleets.fleet else self._fleets.open_capacities
            slices = shape.tp // max(shape.tp_on(here.name), shape.tp_on(there.name))
            uses: tuple[dict[LinkName, Seconds], dict[LinkName, Seconds]] = {}, {}
            for a, b, kind, many in hops(here, i, there, j, shape, nic):
                type_ = "intra_node" if (a.cluster, a.node) == (b.cluster, b.node) else kind
                for use, route in zip(
                    uses, (message_route(fleet, a, b, type_), message_route(fleet, b, a, type_)), strict=True
                ):
                    for link, seconds in route_loads((route,), capacities).items():
                        use[link] = use.get(link, 0.0) + slices * seconds * (many if link[0] == "trunk" else 1)
            self._hops[key] = uses
        return self._hops[key]

    def bytes(self, shape: Shape) -> float:
        """Bytes of a message of a shape."""
        if shape not in self._nbytes:
            self._nbytes[shape] = message_bytes(self._workload, shape.config(self._workload, 2))
        return self._nbytes[shape]

    def is_near_end(self, ends: Sequence[End], stage: int, shape: Shape) -> bool:
        """Whether a stage of a pipeline is near an end of those on its cluster: all others repeat the positions of these."""
        (cluster, index), near = ends[stage], 2 * len(self._costs.stages(ends[stage][0], shape))
        return index < near or sum(other == cluster for other, _ in ends[stage + 1 :]) <= near

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

    def _beside(self, cluster: Cluster, other: Cluster, shape: Shape, nic: str) -> Seconds:
        """Least load of a node between a node of its cluster and another cluster, over all positions of its end stages."""
        positions, there = len(self._costs.stages(cluster, shape)), len(self._costs.stages(other, shape))
        way = nic, self._fleets.open, (shape.tp, shape.cluster_tp, shape.dp, shape.cp, nic, True)
        least = math.inf
        for last in range(positions, min(2 * positions, stage_slots(cluster, shape) // shape.slots)):
            inner = [self._hop((cluster, i), (cluster, i + 1), shape, *way) for i in range(positions - 1, last)]
            for peer in range(there):
                use = _sum([*inner, self._hop((cluster, last), (other, peer), shape, *way)])
                least = min(least, max(use.values(), default=0.0))
        return least * self.bytes(shape)


def _most(runs: Sequence[Links], borders: Sequence[Use]) -> Seconds:
    """The most seconds per byte of one link. Runs, each on its own cluster, have no link in common."""
    crossed = _sum(borders)
    every = (seconds + sum(run.use.get(link, 0.0) for run in runs) for link, seconds in crossed.items())
    return max([*(run.most for run in runs), *every])


def _sum(every: Iterable[Use]) -> dict[LinkName, Seconds]:
    """What several messages need together."""
    found: dict[LinkName, Seconds] = {}
    for use in every:
        for link, seconds in use.items():
            found[link] = found.get(link, 0.0) + seconds
    return found
