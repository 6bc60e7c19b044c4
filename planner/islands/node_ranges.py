"""Islands of some nodes of one cluster: consecutive nodes, where the network between the nodes is thin.

Such an island is named after its nodes, `lab nodes 0-1` or `lab node 3`; names of clusters are islands of whole clusters, or
parts of an island that has several."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import replace

from planner.request import Request
from sim.hardware.cluster import Cluster
from sim.kernels import memory
from sim.plan.offloading import OPTIMIZER, PARAMETERS
from sim.plan.parallel_config import GRADIENT_BYTES, USUAL_GRADIENTS, ParallelConfig
from sim.plan.plan import Plan

THIN = 0.1
"""Share of the computation of a step from which on the seconds of its gradients on the NICs of a node make the network thin:
that of `holmes_sim.idle`, a guess. The computation is at the peak of the devices, so that a network is rather called thin."""
MOST_ISLANDS = 16
"""Most islands of a partition with cut clusters. Published runs had up to 14 (INTELLECT-1, arXiv 2412.01152), published losses
are of up to 8."""
MOST_COMBINATIONS = 64
"""Most combinations of cut clusters that are listed. A guess."""
MOST_PARTITIONS = 12
"""Most partitions with cut clusters that are tried; more take longer. A guess."""
Partition = tuple[tuple[str, ...], ...]
"""Islands, each as the names of its clusters in the order of the topology, or as one range of nodes."""
_RANGE = re.compile(r"(.+) nodes? ([0-9]+)(?:-([0-9]+))?")


def named(cluster: Cluster, first: int, nodes: int) -> str:
    """The name of an island of consecutive nodes of a cluster."""
    return f"{cluster.name} node {first}" if nodes == 1 else f"{cluster.name} nodes {first}-{first + nodes - 1}"


def cluster_and_first(request: Request, name: str) -> tuple[str, int]:
    """(name of the cluster, number of the first node) of a whole cluster or of a range of nodes."""
    match = _RANGE.fullmatch(name)
    if match is None or any(cluster.name == name for cluster in request.topology.fleet.clusters):
        return name, 0
    return match[1], int(match[2])


def nodes_of(name: str) -> int:
    """Number of nodes of a range. Raises ValueError for another name."""
    match = _RANGE.fullmatch(name)
    if match is None:
        raise ValueError(f"{name!r} is no range of nodes")
    return int(match[3] or match[2]) - int(match[2]) + 1


def clusters_of(request: Request, names: tuple[str, ...]) -> list[Cluster]:
    """The clusters of an island, in the order of the topology: whole ones that may be used, or a range of nodes, named so."""
    found = []
    for cluster in request.clusters():
        for name in names:
            if name == cluster.name:
                found.append(cluster)
            elif (match := _RANGE.fullmatch(name)) and match[1] == cluster.name:
                first, nodes = int(match[2]), nodes_of(name)
                found.append(replace(cluster, name=name, nodes=nodes, hosts=cluster.hosts[first : first + nodes]))
    return found


def is_thin(request: Request, cluster: Cluster) -> bool:
    """Whether the gradients of a step take a large part of its computation on the NICs of a node, both directions counted."""
    if cluster.nodes == 1:
        return False
    workload, device = request.workload, cluster.node.device
    rate = max((nic.bandwidth * nic.count for nic in cluster.node.nics), default=0.0)
    if cluster.fabric is not None:
        rate /= max(cluster.fabric.oversubscription, 1.0)
    nbytes = 2 * workload.model.parameters * GRADIENT_BYTES[USUAL_GRADIENTS.get(workload.precision, "fp32")]
    return nbytes > THIN * workload.flops / (cluster.devices * device.peak_of(workload.precision)) * rate


def cuts(cluster: Cluster) -> list[tuple[str, ...]]:
    """Ways to divide the nodes of a cluster into at least two islands, the fewest first: equal parts, and two where none are
    equal; parts lie alike on leaf switches, so that one plan serves all of a size."""
    found = []
    for count in range(2, min(cluster.nodes, MOST_ISLANDS) + 1):
        if cluster.nodes % count and count > 2:
            continue
        sizes = [cluster.nodes // count + (index < cluster.nodes % count) for index in range(count)]
        if cluster.fabric is None or all(_is_aligned(size, cluster.fabric.nodes_per_leaf) for size in sizes):
            firsts = itertools.accumulate(sizes, initial=0)
            found.append(tuple(named(cluster, first, size) for first, size in zip(firsts, sizes, strict=False)))
    return found


def _is_aligned(size: int, per_leaf: int) -> bool:
    return size % per_leaf == 0 or per_leaf % size == 0


def with_cut_clusters(request: Request, partition: Partition) -> list[Partition]:
    """Partitions in which islands of one cluster with a thin network are divided into ranges of its nodes, those with fewest
    islands first: all combinations of such clusters, and each such cluster alone; of many, those with most islands.

    Where there are more than `MOST_COMBINATIONS`, all such clusters are divided at once, each into more parts by and by."""
    ways = {cluster.name: _held(request, cluster) for cluster in request.clusters() if is_thin(request, cluster)}
    of_islands = [[(names,), *(ways.get(names[0], []) if len(names) == 1 else [])] for names in partition]
    if math.prod(map(len, of_islands)) <= MOST_COMBINATIONS:
        chosen = list(itertools.product(*of_islands))[1:]
    else:
        levels = range(1, max(map(len, of_islands)))
        chosen = [tuple(parts[min(level, len(parts) - 1)] for parts in of_islands) for level in levels]
    combined = [one for parts in chosen if len(one := tuple(itertools.chain(*parts))) <= MOST_ISLANDS]
    alone = [cut for names, parts in zip(partition, of_islands, strict=True) for cut in parts[1:] if (names,) != partition]
    return sorted(dict.fromkeys([*combined, *alone]), key=len)[-MOST_PARTITIONS:]


def _held(request: Request, cluster: Cluster) -> list[Partition]:
    """Ways to divide a cluster into islands whose devices have room for the weights, gradients and optimizer state of a model;
    any where parameters are on the hosts."""
    workload, offload = request.workload, request.wishes.offload
    config = ParallelConfig(offload=(OPTIMIZER,) if offload == OPTIMIZER else ())
    least = 0.0 if offload == PARAMETERS else memory.state_bytes(workload.model.parameters, workload, config)
    nodes = math.ceil(least / (cluster.node.count * cluster.node.device.memory))
    return [tuple((name,) for name in cut) for cut in cuts(cluster) if all(nodes_of(name) >= nodes for name in cut)]


def partition_text(partition: Partition) -> str:
    """A partition in few words: `east | west nodes 0-1`, or `lab: 8 x 1 node` for alike ranges of one cluster."""
    words = []
    for shape, group in itertools.groupby(partition, key=_shape):
        islands = list(group)
        if shape is None or len(islands) == 1:
            words += [" + ".join(names) for names in islands]
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
    return named(cluster, first, len(nodes))


def _shape(names: tuple[str, ...]) -> tuple[str, int] | None:
    """(cluster, number of nodes) of an island of a range of nodes, None for others."""
    match = _RANGE.fullmatch(names[0]) if len(names) == 1 else None
    return None if match is None else (match[1], nodes_of(names[0]))
