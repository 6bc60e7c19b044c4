"""Estimated seconds of the gradients of a column: those of its busiest link, with one more replica on another node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from planner.pipelines.parts import Part
from sim.hardware.cluster import Cluster, Device
from sim.hardware.transport import common_transport
from sim.kernels.gradient_buckets import buckets_of_stage
from sim.network.alpha_beta import ProtocolCost, protocol_costs, route_loads
from sim.network.gradient_routes import gradient_operations
from sim.network.paths import Capacities, LinkName
from sim.network.routes import member
from sim.plan.groups import GRADIENT_KINDS
from sim.plan.pipelines import alike
from sim.plan.plan import Plan
from sim.units import Bytes, Seconds


def gradient_seconds(clusters: Sequence[Cluster], part: Part, plan: Plan) -> Seconds:
    """Seconds of the busiest link of the part's nodes, or trunk, that reduces gradients and gathers weights, with one more
    replica on another node, of whose links others load the rest: a node of the cluster with which it takes longest, since the
    replicas of a plan are usually on several. The other replica has all experts."""
    return max(_beside(plan, partners) for partners in _other_nodes(clusters, part))


def _beside(plan: Plan, partners: list[Device]) -> Seconds:
    """`gradient_seconds` with the replica on some devices of another node."""
    capacities, loads = Capacities(plan.fleet), dict[LinkName, Seconds]()
    summed = alike(plan, 1, 1 if plan.config.splits_experts else None)
    own = {(device.cluster, device.node) for device in plan.placement}
    for number, (devices, payloads) in enumerate(_rings(summed)):
        ring = (*devices, partners[number % len(partners)])
        group = replace(member(ring, common_transport(plan.fleet, ring)[0], "ring"), queued=True)
        for operation, nbytes in zip(gradient_operations(summed.config), payloads, strict=False):
            costs = protocol_costs(plan.fleet, (group,), operation, capacities)
            for link, seconds in route_loads(_fastest(costs, nbytes).routes, capacities).items():
                if link[0] == "trunk" or link[1:3] in own:
                    loads[link] = loads.get(link, 0.0) + seconds * nbytes
    return max(loads.values(), default=0.0)


def _other_nodes(clusters: Sequence[Cluster], part: Part) -> Iterator[list[Device]]:
    """Devices of a node of each cluster of which a part leaves some to others."""
    for cluster, number in zip(clusters, part, strict=True):
        if number < cluster.nodes:
            yield [Device(cluster.name, number, index) for index in range(cluster.node.count)]


def _rings(plan: Plan) -> Iterator[tuple[tuple[Device, ...], tuple[Bytes, Bytes]]]:
    """(devices of the replicas, bytes of gradients and of weights) of each slice of each stage, and of its experts."""
    config = plan.config
    for stage in range(config.pp):
        whole = [one.whole for one in buckets_of_stage(plan, stage)]
        ranks = range(config.first_rank(stage), config.first_rank(stage + 1))
        for kind, apart in zip(GRADIENT_KINDS, (config.tp_of(stage), config.expert_mesh), strict=True):
            every = ([n for one in whole for name, n in getattr(one, way) if name == kind] for way in ("gradients", "weights"))
            gradients, weights = map(sum, every)
            if gradients or weights:
                for one in range(apart):
                    yield tuple(plan.placement[rank] for rank in ranks[one::apart]), (gradients, weights)


def _fastest(costs: tuple[ProtocolCost, ...], nbytes: Bytes) -> ProtocolCost:
    return min(costs, key=lambda one: one.cost.seconds(nbytes))
