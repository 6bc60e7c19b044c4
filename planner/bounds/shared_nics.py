"""Seconds of the NICs of a node for all that one stage sends in a step: messages, gradients and weights.

Where each stage fills whole nodes, and its messages leave them over the NICs that its data-parallel groups use, too, a NIC must
carry the gathers of weights, all messages there and back, and the reductions of gradients, in whatever order. Their sum is a
lower bound on the step. It counts where no rank waits for messages to leave, such as with virtual stages."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from planner.costs.context import PlanningContext
from planner.costs.node_classes import NodeClass
from planner.placement.leaves import oversubscribed
from planner.space.shape import Shape
from planner.space.shapes import slots
from sim.errors import NoRoute
from sim.hardware.cluster import Cluster
from sim.units import Seconds


class NicLoad(NamedTuple):
    """Seconds of a NIC: of all messages of a step in one direction, and for each byte that a rank reduces and gathers."""

    messages: Seconds
    reduced: Seconds
    gathered: Seconds


def nic_loads(
    context: PlanningContext, shape: Shape, cluster: Cluster, clusters: Sequence[Cluster], nic: str
) -> tuple[NicLoad, ...]:
    """Loads of the NICs of a node of a cluster in pipelines on some clusters; none where stages do not fill whole nodes."""
    if not nic or shape.cluster_tp or any(oversubscribed(one) for one in clusters):
        return ()
    own = context.gradients.of_whole_nodes(cluster, shape)
    several = slots(cluster, shape.tp) >= 2 * shape.slots
    neighbours = [(one, int(one == cluster)) for one in clusters if one != cluster or several]
    uses = []
    for neighbour in neighbours if own else ():
        with suppress(NoRoute):
            uses.append(context.loads.ways((cluster, 0), neighbour, shape, nic)[0])
    m, nbytes = shape.least_microbatches(context.request.workload), context.loads.bytes(shape)
    found = {
        NicLoad(m * nbytes * min(use[link] for use in uses), reduced, gathered)
        for link, (reduced, gathered) in own.items()
        if uses and all(link in use for use in uses)
    }
    return tuple(sorted(found))


def loads_of_classes(context: PlanningContext, order: Sequence[NodeClass], nic: str) -> list[tuple[NicLoad, ...]]:
    """The loads of the NICs of a node of each class in pipelines on these classes, in any order; all orders share them."""
    clusters, found = [option.cluster for option in order], list[tuple[NicLoad, ...]]()
    key = "nics", frozenset(cluster.name for cluster in clusters), nic
    for option in order:
        if key not in option.shared:
            option.shared[key] = nic_loads(context, option.shape, option.cluster, clusters, nic)
        found.append(option.shared[key])
    return found


def least_seconds(context: PlanningContext, shape: Shape, loads: Sequence[NicLoad], role: str, layers: int) -> Seconds:
    """A lower bound in seconds on a step in which a stage in a role has so many layers; 0 without loads."""
    if not loads:
        return 0.0
    ends = role == "first", role == "last"
    reduced, gathered = context.gradients.moved(shape, layers, *ends)
    messages = 2 * shape.vpp - any(ends)  # the last stage sends one fewer ahead, and the first one back
    return max(messages * one.messages + reduced * one.reduced + gathered * one.gathered for one in loads)
