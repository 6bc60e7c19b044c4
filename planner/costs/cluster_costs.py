"""Costs of the stages of one cluster: collectives and compute, one entry for each position of a stage on its nodes."""

from __future__ import annotations

import functools
import math
from dataclasses import replace

from planner.costs.fleet_views import FleetViews
from planner.costs.stage_positions import period
from planner.space.device_slots import Run, rows
from planner.space.shape import Shape, split_backward
from planner.space.shapes import slots, spread, uneven
from sim.analytic.stage_costs import StageCost, StageCosts
from sim.field_changes import changed
from sim.hardware.cluster import Cluster
from sim.network.collective_costs import CollectiveCosts
from sim.network.replica_rows import ReplicaRows
from sim.workload.workload import Workload


@functools.lru_cache(maxsize=4096)
def single_replica(shape: Shape) -> Shape:
    """The shape with one replica, under a schedule that splits the backward."""
    return changed(split_backward(shape), dp=1, zero_stage=1, zero_shard_size=None)


def passing_alike(cluster: Cluster, shape: Shape) -> Shape:
    """The shape whose stages on a cluster have the same passes, by which they are cached, under a schedule that splits the
    backward: with one replica, or with the fewest replicas over which cp and experts are divided. Where the groups of these may
    have unequal positions on the nodes (`have_equal_positions`), or layers gather their parameters, it is the shape itself."""
    if max(shape.cp, shape.expert_rows) == 1:
        return single_replica(shape)
    whole = split_backward(shape)
    if shape.zero_stage == 3 or not have_equal_positions(cluster, shape):
        return whole
    return changed(whole.one_mesh, zero_stage=1)


def have_equal_positions(cluster: Cluster, shape: Shape) -> bool:
    """Whether the ranks over which cp and experts are divided are always a part of a node, or whole nodes under no leaf
    switches, so that they exchange tokens equally fast everywhere."""
    per_node, rows = cluster.node.count // shape.tp, math.lcm(shape.cp, shape.expert_rows)
    return per_node % rows == 0 or (rows % per_node == 0 and cluster.fabric is None)


class ClusterCosts:
    """Costs of the stages of single clusters, each computed once for a request."""

    def __init__(self, workload: Workload, fleets: FleetViews):
        self._workload, self._fleets = workload, fleets
        self._collectives: dict[tuple[str | int | None, ...], tuple[CollectiveCosts, ...]] = {}
        self._stages: dict[tuple[str, Shape, bool], tuple[StageCosts, ...]] = {}
        self._layers: dict[tuple[str, Shape, bool], tuple[float, float]] = {}
        self._again: dict[tuple[str, Shape, bool], float] = {}
        self._recomputation: dict[tuple[str, Shape, bool], float] = {}
        self._least: dict[tuple[str, Shape], dict[tuple[str, int], StageCost]] = {}

    def collectives(self, cluster: Cluster, shape: Shape) -> tuple[CollectiveCosts, ...]:
        """Collective costs of the stages of a cluster, one for each position on its nodes."""
        shape = shape.on(cluster.name)
        key = cluster.name, shape.tp, shape.dp, shape.cp, shape.ep, shape.etp, shape.zero_stage, shape.zero_shard_size
        if key not in self._collectives:
            config = shape.config(self._workload, 1)
            per_node, stages = cluster.node.count // shape.tp, slots(cluster, shape.tp) // shape.slots
            positions = max(1, min(period(cluster, shape), stages))
            firsts = (index * shape.slots % per_node for index in range(positions))  # each from the first node of a leaf
            placed = (rows((Run(cluster, first, shape.slots),), shape.tp) for first in firsts)
            fleet, capacities = self._fleets.fleet, self._fleets.capacities
            self._collectives[key] = tuple(CollectiveCosts(fleet, config, stage, capacities) for stage in placed)
        return self._collectives[key]

    def stages(self, cluster: Cluster, shape: Shape, alone: bool = False) -> tuple[StageCosts, ...]:
        """Costs of the stages of a cluster, one for each position on its nodes; the backward is split.

        Stages inside one node share one object: their groups send over nothing but the ports of its devices, which are alike
        (`sim.network.paths`). alone: of the only stage of a pipeline, to whose layers no `launch_per_rank` is added
        (`sim.kernels.compute`)."""
        shape = shape.on(cluster.name)
        key = cluster.name, split_backward(shape), alone
        if key not in self._stages:
            config, per_node = key[1].config(self._workload, 1 if alone else 2), cluster.node.count // shape.tp
            every = [StageCosts(self._workload, config, collectives) for collectives in self.collectives(cluster, shape)]
            inside = (position * shape.slots % per_node + shape.slots <= per_node for position in range(len(every)))
            self._stages[key] = tuple(every[0] if alike else own for alike, own in zip(inside, every, strict=True))
        return self._stages[key]

    def spread(self, cluster: Cluster, shape: Shape) -> StageCosts | None:
        """Costs of a pipeline of one stage that is spread evenly over its nodes; None where this equals filling node after
        node."""
        shape = shape.on(cluster.name)
        if not uneven(cluster, shape, 1):
            return None
        config = split_backward(shape).config(self._workload, 1)
        key = cluster.name, "evenly", shape.tp, shape.dp, shape.zero_stage, shape.zero_shard_size
        if key not in self._collectives:
            placed = ReplicaRows.of(self._fleets.fleet, spread(cluster, shape.tp, shape.slots))
            self._collectives[key] = (CollectiveCosts(self._fleets.fleet, config, placed, self._fleets.capacities),)
        return StageCosts(self._workload, config, self._collectives[key][0])

    def layer(self, cluster: Cluster, shape: Shape, alone: bool = False) -> tuple[float, float]:
        """(forward, backward) seconds of one microbatch on one layer, by `work` where replicas do not matter, else by `passes`.

        alone: in a pipeline of one stage (`stages`)."""
        one = passing_alike(cluster, shape.on(cluster.name))
        key = cluster.name, one, alone
        if key not in self._layers:
            every = list(dict.fromkeys(self.stages(cluster, one, alone)))
            of = StageCosts.work if max(one.cp, one.ep) == 1 else StageCosts.passes
            ones, twos = ([of(costs, layers, False, False) for costs in every] for layers in (1, 2))
            forward, backward = (min(two[which] - one[which] for one, two in zip(ones, twos, strict=True)) for which in (0, 1))
            self._layers[key] = forward, backward
        return self._layers[key]

    def recomputation(self, cluster: Cluster, shape: Shape, alone: bool = False) -> float:
        """Seconds of one microbatch by which a recomputed layer lengthens the backward of its stage; alone: as in `stages`."""
        given = cluster.name, shape, alone
        if given not in self._recomputation:
            self._recomputation[given] = self._again_on(cluster, shape.on(cluster.name), alone)
        return self._recomputation[given]

    def _again_on(self, cluster: Cluster, own: Shape, alone: bool) -> float:
        """`recomputation` of a shape by itself (`Shape.on`); all schedules and, mostly, numbers of replicas share it."""
        own = passing_alike(cluster, own)
        key = cluster.name, own, alone
        if key not in self._again:
            self._again[key] = min(
                _backward(costs, "full") - _backward(costs, "none") for costs in dict.fromkeys(self.stages(cluster, own, alone))
            )
        return self._again[key]

    def least(self, cluster: Cluster, shape: Shape) -> dict[tuple[str, int], StageCost]:
        """The cache of the least costs of a cluster's stages by (role, layers), shared by all schedules."""
        return self._least.setdefault((cluster.name, split_backward(shape.on(cluster.name))), {})


def _backward(costs: StageCosts, recompute: str) -> float:
    """Seconds of the backward of one layer between others."""
    return replace(costs, config=costs.config.recomputing(recompute)).passes(1, False, False)[1]
