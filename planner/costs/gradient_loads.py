"""Lower bounds on steps in which stages that share a node reduce gradients and gather weights at the same time.

Where a stage fills neither whole nodes nor a whole part of one, it shares links with the stage before or behind it.

**Reductions.** A link carries at most its full rate, and no gradients of a stage before its last backward is at its first
bucket. So for every set S of stages that load a link,

    step >= min over S (start of the reduction) + sum over S (seconds of the link) + min over S (optimizer)

Among the sets with one least start, that of all stages that start later gives the largest bound.

**Gathers.** All stages gather weights from the begin of the step on. The first stage's first forward ends after its gathers,
and until then there are no messages. Under max-min fair sharing every stage that still gathers moves at least a `rate`. With W
seconds of a link for each of the B bytes of a stage, the gathers of the first stage end no sooner than at the least G with

    G = W B of the first stage + sum over the others of W min(B, rate (G - latencies))"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from planner.costs.fleet_views import FleetViews
from planner.costs.stage_positions import period
from planner.space.device_slots import Run, rows
from planner.space.shape import Shape, split_backward
from planner.space.shapes import slots
from sim.analytic.candidates import Floats
from sim.hardware.cluster import Cluster
from sim.kernels import payloads
from sim.network.collective_costs import CollectiveCosts, LinkLoads
from sim.network.paths import LinkName
from sim.plan.parallel_config import ParallelConfig
from sim.units import Bytes
from sim.workload.workload import Workload

ROUNDS = 30
"""Rounds of the iteration for G, which rises from round to round and is a bound after each. A larger number is of no use: with
two stages of a link the error is halved in every round."""
Link: TypeAlias = tuple[tuple[int, float, float], ...]
"""A link that several stages load: for each of them its position in the pattern of stages on nodes, and the seconds of the link
for each byte that it reduces and that it gathers."""


@dataclass(frozen=True, slots=True)
class Rival:
    """Another stage whose gathers load a link of the first stage: its position, the seconds of the link for each of its bytes,
    the least bytes per second that it moves at any time, and the latency in seconds of each of its gathers."""

    position: int
    per_byte: float
    rate: float
    latency: float


@dataclass(frozen=True, slots=True)
class Shared:
    """The links that stages of a pattern share, each set of loads once; `first`: for each link that the gathers of the stage at
    position 0 share with others', its seconds for each byte of that stage, and the others."""

    links: tuple[Link, ...] = ()
    first: tuple[tuple[float, tuple[Rival, ...]], ...] = ()


class GradientLoads:
    """Loads of links by the collectives of stages that share them; computed once for a request."""

    def __init__(self, workload: Workload, fleets: FleetViews):
        self._workload, self._fleets = workload, fleets
        self._shared: dict[tuple[object, ...], Shared] = {}
        self._whole: dict[tuple[object, ...], dict[LinkName, tuple[float, float]]] = {}
        self._held: dict[tuple[ParallelConfig, bool, bool], Floats] = {}
        self._moved: dict[tuple[Shape, bool, bool], dict[int, tuple[Bytes, Bytes]]] = {}

    def moved(self, shape: Shape, layers: int, first: bool, last: bool) -> tuple[Bytes, Bytes]:
        """Bytes of dense gradients that a rank of a stage reduces, and of dense weights that it gathers; all schedules share
        them."""
        known = self._moved.setdefault((split_backward(shape), first, last), {})
        if layers not in known:
            stage = self._workload, shape.config(self._workload, 2), layers, first, last
            reduced, gathered = (
                dict(held(*stage)).get("dp", 0.0) for held in (payloads.gradient_bytes, payloads.parameter_bytes)
            )
            known[layers] = reduced, gathered
        return known[layers]

    def shared(self, cluster: Cluster, shape: Shape) -> Shared:
        """The links of a cluster's nodes that several stages of the pattern load; none with virtual stages."""
        shape = shape.on(cluster.name)
        number = min(period(cluster, shape), slots(cluster, shape.tp) // shape.slots)
        if number < 2 or shape.slots == 1 or cluster.fabric or shape.vpp > 1:
            return Shared()
        config = shape.config(self._workload, 2)
        key = cluster.name, shape.tp, shape.dp, shape.cp, shape.zero_stage, shape.zero_shard_size, config.reduction
        if key not in self._shared:
            placed = [rows((Run(cluster, position * shape.slots, shape.slots),), shape.tp) for position in range(number)]
            costs = [CollectiveCosts(self._fleets.fleet, config, stage, self._fleets.capacities) for stage in placed]
            reductions = [one.link_loads(config.reduction) for one in costs]
            gathers = [one.link_loads("all_gather") for one in costs] if config.zero_stage in (1, 2) else []
            self._shared[key] = Shared(_links(reductions, gathers), tuple(_first(gathers)))
        return self._shared[key]

    def of_whole_nodes(self, cluster: Cluster, shape: Shape) -> dict[LinkName, tuple[float, float]]:
        """Seconds of each link that the first stage of a cluster loads for each byte that it reduces and that it gathers; none
        where a stage does not fill whole nodes."""
        shape = shape.on(cluster.name)
        if shape.slots == 1 or period(cluster, shape) > 1 or cluster.fabric or slots(cluster, shape.tp) < shape.slots:
            return {}
        config = shape.config(self._workload, 2)
        key = "whole", cluster.name, shape.tp, shape.dp, shape.cp, shape.zero_stage, shape.zero_shard_size, config.reduction
        if key not in self._whole:
            stage = rows((Run(cluster, 0, shape.slots),), shape.tp)
            costs = CollectiveCosts(self._fleets.fleet, config, stage, self._fleets.capacities)
            reduced = costs.link_loads(config.reduction).least
            gathered = costs.link_loads("all_gather").least if config.zero_stage in (1, 2) else {}
            self._whole[key] = {link: (seconds, gathered.get(link, 0.0)) for link, seconds in reduced.items()}
        return self._whole[key]

    def gathered(self, clusters: Sequence[Cluster], shape: Shape, layers: NDArray[np.int64]) -> Floats:
        """Lower bounds in seconds on the end of the gathers of the first stage, shape (pipelines,); 0 where it shares no link.

        clusters: one for each stage; layers: shape (pipelines, stages)."""
        ends: Floats = np.zeros(len(layers))
        block = next(_blocks(clusters, shape))[1]
        for own, rivals in self.shared(clusters[0], shape).first if shape.overlap_param_gather else ():
            present = [rival for rival in rivals if rival.position in block]
            if not present:
                continue
            held = [self._of(clusters, shape, block[rival.position], layers) for rival in present]
            alone = own * self._of(clusters, shape, 0, layers)[1]
            end = alone
            for _ in range(ROUNDS):
                end = alone + sum(
                    rival.per_byte * np.minimum(nbytes, rival.rate * np.maximum(end - buckets * rival.latency, 0.0))
                    for rival, (_, nbytes, buckets) in zip(present, held, strict=True)
                )
            np.maximum(ends, end, out=ends)
        return ends

    def ends(
        self, clusters: Sequence[Cluster], shape: Shape, layers: NDArray[np.int64], starts: Floats, optimizer: Floats
    ) -> Floats:
        """Lower bounds in seconds on the steps of pipelines, shape (pipelines,); 0 where no stages share a link.

        Shapes: as `gathered`; `starts` of the reductions and `optimizer`, with the gathers after it, in seconds (stages,
        pipelines)."""
        found: Floats = np.zeros(len(layers))
        for cluster, block in _blocks(clusters, shape):
            for link in self.shared(cluster, shape).links if len(block) > 1 else ():
                loading = [(block[position], reduce, gather) for position, reduce, gather in link if position in block]
                if len(loading) < 2:
                    continue
                which = [stage for stage, _, _ in loading]
                held = np.array([self._of(clusters, shape, stage, layers) for stage in which])
                reduced = np.array([seconds for _, seconds, _ in loading])[:, None] * held[:, 0]
                gathered = np.array([seconds for _, _, seconds in loading])[:, None] * held[:, 1]
                np.maximum(found, busy_until(starts[which], reduced) + optimizer[which].min(axis=0), out=found)
                if not shape.overlap_param_gather:
                    np.maximum(found, busy_until(starts[which], reduced + gathered), out=found)
        return found

    def _of(self, clusters: Sequence[Cluster], shape: Shape, stage: int, layers: NDArray[np.int64]) -> Floats:
        """Bytes that one rank of a stage reduces and gathers over its data-parallel group, and the number of buckets of each;
        shape (3, pipelines)."""
        ends = stage == 0, stage == len(clusters) - 1
        key = shape.on(clusters[stage].name).config(self._workload, 2), *ends
        if key not in self._held:
            every = ((self._workload, key[0], k, *ends) for k in range(self._workload.model.layers + 1))
            self._held[key] = np.array([_bytes_and_buckets(one) for one in every]).T
        found: Floats = self._held[key][:, layers[:, stage]]
        return found


def _bytes_and_buckets(stage: tuple[Workload, ParallelConfig, int, bool, bool]) -> tuple[float, float, float]:
    reduced, gathered = (dict(held(*stage)).get("dp", 0.0) for held in (payloads.gradient_bytes, payloads.parameter_bytes))
    return reduced, gathered, float(payloads.buckets(*stage))


def _links(reductions: Sequence[LinkLoads], gathers: Sequence[LinkLoads]) -> tuple[Link, ...]:
    """The links that the reductions of several positions load."""
    loads: dict[LinkName, list[tuple[int, float, float]]] = {}
    for position, reduced in enumerate(reductions):
        for link, seconds in reduced.least.items():
            gathered = gathers[position].least.get(link, 0.0) if gathers else 0.0
            loads.setdefault(link, []).append((position, seconds, gathered))
    return tuple(dict.fromkeys(tuple(link) for link in loads.values() if len(link) > 1))


def _first(gathers: Sequence[LinkLoads]) -> Iterator[tuple[float, tuple[Rival, ...]]]:
    """`Shared.first`. A stage that loads different links one after the other is no rival: it may not be at this link."""
    found: dict[tuple[float, tuple[Rival, ...]], None] = {}
    most: dict[LinkName, float] = {}
    for one in gathers:
        for link, seconds in one.most.items():
            most[link] = most.get(link, 0.0) + seconds
    for link, own in gathers[0].least.items() if gathers else ():
        rivals = tuple(
            Rival(position, one.least[link], 1 / max(most[each] for each in one.most), one.latency)
            for position, one in enumerate(gathers)
            if position and link in one.least and one.in_one_leg
        )
        if rivals:
            found[own, rivals] = None
    yield from found


def _blocks(clusters: Sequence[Cluster], shape: Shape) -> Iterator[tuple[Cluster, dict[int, int]]]:
    """(cluster, position -> stage) of each block of nodes that a pattern of stages fills, that of the first stage first."""
    used: dict[str, int] = {}
    blocks: dict[tuple[Cluster, int], dict[int, int]] = {}
    for stage, cluster in enumerate(clusters):
        index = used.get(cluster.name, 0)
        used[cluster.name] = index + 1
        block, position = divmod(index, period(cluster, shape))
        blocks.setdefault((cluster, block), {})[position] = stage
    for (cluster, _), stages in blocks.items():
        yield cluster, stages


def busy_until(starts: Floats, loads: Floats) -> Floats:
    """The earliest end of a link that carries loads, none of which begins before its start; shapes (loads, pipelines)."""
    order = np.argsort(starts, axis=0)
    begun, later = (np.take_along_axis(one, order, axis=0) for one in (starts, loads))
    remaining = np.cumsum(later[::-1], axis=0)[::-1]
    found: Floats = np.max(begun + remaining, axis=0)
    return found
