"""Islands of some nodes of one cluster: consecutive nodes, where the network between the nodes is thin."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

from planner.request import Request
from sim.hardware.cluster import Cluster
from sim.kernels import memory
from sim.plan.offloading import OPTIMIZER, PARAMETERS
from sim.plan.parallel_config import GRADIENT_BYTES, USUAL_GRADIENTS, ParallelConfig
from sim.plan.plan import Plan

THIN = 0.1
"""Share of the computation of a step from which on the seconds of its gradients on the NICs of a node make the network thin:
that of `holmes_sim.idle`. The computation is at the peak of the devices, so that a network is rather called thin. Where it is
not, a step without these gradients is shorter by less than this share; that so little is not worth islands is a guess."""
MOST_ISLANDS = 16
"""Most islands of a partition with cut clusters. Published runs had up to 14 (INTELLECT-1, arXiv 2412.01152), published losses
are of up to 8."""
MOST_COMBINATIONS = 64
"""Most combinations of cut clusters that are listed. A guess."""
MOST_PARTITIONS = 12
"""Most partitions with cut clusters that are tried; more take longer. A guess."""


@dataclass(frozen=True, slots=True)
class NodeRange:
    """Consecutive nodes of a cluster: its name, the number of the first node, and how many they are."""

    cluster: str
    first: int
    nodes: int

    def __str__(self) -> str:
        numbers = f"node {self.first}" if self.nodes == 1 else f"nodes {self.first}-{self.first + self.nodes - 1}"
        return f"{self.cluster} {numbers}"


Island = tuple[str | NodeRange, ...]
"""The names of the clusters of an island in the order of the topology, or one range of nodes."""
Partition = tuple[Island, ...]
"""Islands, no two of which have a node in common."""


def cluster_and_first(part: str | NodeRange) -> tuple[str, int]:
    """(name of the cluster, number of the first node) of a whole cluster or of a range of nodes."""
    return (part.cluster, part.first) if isinstance(part, NodeRange) else (part, 0)


def clusters_of(request: Request, island: Island) -> list[Cluster]:
    """The clusters of an island, in the order of the topology: whole ones that may be used, or a range of nodes, named so."""
    found = []
    for cluster in request.clusters():
        for part in island:
            if part == cluster.name:
                found.append(cluster)
            elif isinstance(part, NodeRange) and part.cluster == cluster.name:
                hosts = cluster.hosts[part.first : part.first + part.nodes]
                found.append(replace(cluster, name=str(part), nodes=part.nodes, hosts=hosts))
    return found


def is_thin(request: Request, cluster: Cluster) -> bool:
    """Whether the gradients of a step take a large part of its computation on the NICs of a node, both directions counted."""
    if cluster.nodes == 1:
        return False
    workload, device = request.workload, cluster.node.device
    rate = max((nic.bandwidth * nic.count for nic in cluster.node.nics), default=0.0)
    if cluster.fabric is not None:
        rate /= max(cluster.fabric.oversubscription, 1.0)
    nbytes = 2 * workload.trained_parameters * GRADIENT_BYTES[USUAL_GRADIENTS.get(workload.precision, "fp32")]
    return nbytes > THIN * workload.flops / (cluster.devices * device.peak_of(workload.precision)) * rate


def cuts(cluster: Cluster) -> list[tuple[NodeRange, ...]]:
    """Ways to divide the nodes of a cluster into at least two islands, the fewest first: equal parts, and two where none are
    equal; parts lie alike on leaf switches, so that one plan serves all of a size."""
    found = []
    for count in range(2, min(cluster.nodes, MOST_ISLANDS) + 1):
        if cluster.nodes % count and count > 2:
            continue
        sizes = [cluster.nodes // count + (index < cluster.nodes % count) for index in range(count)]
        if cluster.fabric is None or all(_is_aligned(size, cluster.fabric.nodes_per_leaf) for size in sizes):
            firsts = itertools.accumulate(sizes, initial=0)
            found.append(tuple(NodeRange(cluster.name, first, size) for first, size in zip(firsts, sizes, strict=False)))
    return found


def _is_aligned(size: int, per_leaf: int) -> bool:
    return size % per_leaf == 0 or per_leaf % size == 0


def with_cut_clusters(request: Request, partition: Partition) -> list[Partition]:
    """Partitions in which islands of one cluster with a thin network are divided into ranges of its nodes, those with fewest
    islands first: all combinations of such clusters, and each such cluster alone; of many, those with most islands.

    Where there are more than `MOST_COMBINATIONS`, all such clusters are divided at once, each into more parts by and by."""
    ways: dict[str | NodeRange, list[Partition]] = {}
    ways |= {cluster.name: _held(request, cluster) for cluster in request.clusters() if is_thin(request, cluster)}
    of_islands = [[(island,), *(ways.get(island[0], []) if len(island) == 1 else [])] for island in partition]
    if math.prod(map(len, of_islands)) <= MOST_COMBINATIONS:
        chosen = list(itertools.product(*of_islands))[1:]
    else:
        levels = range(1, max(map(len, of_islands)))
        chosen = [tuple(parts[min(level, len(parts) - 1)] for parts in of_islands) for level in levels]
    combined = [one for parts in chosen if len(one := tuple(itertools.chain(*parts))) <= MOST_ISLANDS]
    alone = [cut for island, parts in zip(partition, of_islands, strict=True) for cut in parts[1:] if (island,) != partition]
    return sorted(dict.fromkeys([*combined, *alone]), key=len)[-MOST_PARTITIONS:]


def _held(request: Request, cluster: Cluster) -> list[Partition]:
    """Ways to divide a cluster into islands whose devices have room for the weights, gradients and optimizer state of a model;
    any where parameters are on the hosts."""
    workload, offload = request.workload, request.wishes.offload
    config = ParallelConfig(offload=(OPTIMIZER,) if OPTIMIZER in request.wishes.offloaded else ())
    state = memory.state_bytes(workload.trained_parameters, workload, config)
    state += memory.frozen_bytes(workload, config, workload.model.layers, True, True)
    least = 0.0 if offload == PARAMETERS else state
    nodes = math.ceil(least / (cluster.node.count * cluster.node.device.memory))
    return [tuple((part,) for part in cut) for cut in cuts(cluster) if all(part.nodes >= nodes for part in cut)]


def name_of(island: Island) -> str:
    """An island in words: `east + west`, or `lab nodes 0-1`."""
    return " + ".join(map(str, island))


def partition_text(partition: Partition) -> str:
    """A partition in few words: `east | west nodes 0-1`, or `lab: 8 x 1 node` for alike ranges of one cluster."""
    words: list[str] = []
    for shape, group in itertools.groupby(partition, key=_shape):
        islands = list(group)
        if shape is None or len(islands) == 1:
            words += map(name_of, islands)
        else:
            words.append(f"{shape[0]}: {len(islands)} x {shape[1]} node{'s' if shape[1] > 1 else ''}")
    return " | ".join(words)


def island_text(island: Plan) -> str:
    """Clusters of an island: `east + west`; of one cluster that it does not fill with its nodes: `lab nodes 0-1`."""
    names = list(dict.fromkeys(device.cluster for device in island.placement))
    nodes = sorted({device.node for device in island.placement})
    first, cluster = nodes[0], island.fleet.cluster(names[0])
    if len(names) > 1 or len(nodes) == cluster.nodes or nodes != list(range(first, first + len(nodes))):
        return " + ".join(names)
    return str(NodeRange(cluster.name, first, len(nodes)))


def _shape(island: Island) -> tuple[str, int] | None:
    """(cluster, number of nodes) of an island of a range of nodes, None for others."""
    part = island[0]
    return (part.cluster, part.nodes) if isinstance(part, NodeRange) else None
