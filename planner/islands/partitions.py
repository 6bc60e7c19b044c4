"""Partitions of clusters into islands: those that links of at least some bandwidth join, for each such bandwidth."""

from __future__ import annotations

import itertools

from planner.islands.node_ranges import Island, Partition, clusters_of
from planner.request import Request

MOST_SETS = 4
"""Number of islands up to which all sets of them are tried: 10 sets of 2 or 3 of 4. A guess; more take longer."""


def partitions(request: Request) -> list[Partition]:
    """All partitions of the clusters that may be used into two or more islands, the one with fewest islands first.

    For each bandwidth of a link between clusters, the islands are what remains joined without the links of at most that
    bandwidth; links between the same clusters add up. Clusters that no link joins are islands of their own."""
    names = [cluster.name for cluster in request.clusters()]
    import networkx as nx  # takes longer than many searches

    graph: nx.Graph[str] = nx.Graph()
    graph.add_nodes_from(names)
    for trunk in request.topology.fleet.trunks:
        a, b = trunk.between
        if a in graph and b in graph:
            before = graph.get_edge_data(a, b, {"bandwidth": 0.0})["bandwidth"]
            graph.add_edge(a, b, bandwidth=before + trunk.bandwidth)
    rates = sorted({data["bandwidth"] for _, _, data in graph.edges(data=True)})
    found: dict[Partition, None] = {}
    for rate in (0.0, *rates):
        thick: nx.Graph[str] = nx.Graph()
        thick.add_nodes_from(names)
        thick.add_edges_from((a, b) for a, b, data in graph.edges(data=True) if data["bandwidth"] > rate)
        parts = [sorted(part, key=names.index) for part in nx.connected_components(thick)]
        if len(parts) > 1:
            found[tuple(map(tuple, sorted(parts, key=lambda part: names.index(part[0]))))] = None
    return list(found)


def with_some_left_out(request: Request, partition: Partition) -> list[Partition]:
    """Partitions with two or more, but not all, islands of a partition, those with most first: one slow link holds back all.

    All such sets of up to `MOST_SETS` islands; of more, only those that leave out the slowest islands, by their peaks."""
    if len(partition) <= MOST_SETS:
        sizes = range(len(partition) - 1, 1, -1)
        return [some for size in sizes for some in itertools.combinations(partition, size)]
    by_peak = sorted(partition, key=lambda names: peak(request, names))
    kept = (set(by_peak[left_out:]) for left_out in range(1, len(partition) - 1))
    return [tuple(names for names in partition if names in some) for some in kept]


def peak(request: Request, island: Island) -> float:
    """FLOP/s of all devices of an island."""
    clusters = clusters_of(request, island)
    return sum(cluster.devices * cluster.node.device.peak_of(request.workload.precision) for cluster in clusters)
