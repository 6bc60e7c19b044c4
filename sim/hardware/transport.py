"""Transport selection: the NIC type over which a group of devices communicates, and the trunks between its clusters."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable

from sim.errors import NoRoute
from sim.hardware.cluster import Device, Fleet, Nic, Trunk


@functools.lru_cache(maxsize=256)
def trunk_path(fleet: Fleet, source: str, target: str, kind: str) -> tuple[tuple[Trunk, bool], ...] | None:
    """Shortest path of trunks of a NIC type between two clusters: (trunk, whether it is used from its first end to its second).

    Minimizes latency; of paths with equal latency it takes the one of larger bandwidth, then the first. Empty inside one
    cluster; None if there is no path."""
    if source == target:
        names = [source]
    elif len(fleet.clusters) > 2:
        names = _shortest_path(fleet, source, target, kind)
    else:
        names = [source, target] if any(trunk.kind == kind for trunk in fleet.trunks) else []
    if not names:
        return None
    found = ((trunk_between(fleet, a, b, kind), a) for a, b in itertools.pairwise(names))
    return tuple((trunk, trunk.between[0] == a) for trunk, a in found)


def _shortest_path(fleet: Fleet, source: str, target: str, kind: str) -> list[str]:
    """The clusters on the path of `trunk_path`; none where there is no path."""
    import networkx as nx  # its import takes longer than a command on one or two clusters needs otherwise

    graph: nx.Graph[str] = nx.Graph()
    graph.add_nodes_from(cluster.name for cluster in fleet.clusters)
    for trunk in fleet.trunks:
        if trunk.kind == kind:
            best = trunk_between(fleet, *trunk.between, kind)
            graph.add_edge(*trunk.between, cost=(best.latency, 1 / best.bandwidth))
    hops = {(a, b): data["cost"] for a, b, data in graph.edges(data=True)}
    heaviest = max((narrow for _, narrow in hops.values()), default=1.0)
    nx.set_edge_attributes(graph, {edge: late + 1e-9 * narrow / heaviest for edge, (late, narrow) in hops.items()}, "weight")
    try:
        names: list[str] = nx.shortest_path(graph, source, target, weight="weight")
    except nx.NetworkXNoPath:
        return []
    return names


def trunk_between(fleet: Fleet, a: str, b: str, kind: str) -> Trunk:
    """The trunk of a NIC type between two adjacent clusters: least latency first, then largest bandwidth."""
    joins = [trunk for trunk in fleet.trunks if trunk.kind == kind and set(trunk.between) == {a, b}]
    return min(joins, key=lambda trunk: (trunk.latency, -trunk.bandwidth))


def common_transport(fleet: Fleet, devices: tuple[Device, ...]) -> tuple[str, str]:
    """The (NIC type, transport) that a group of devices uses: automatic NIC selection.

    Inside one node it is the interconnect, ("intra_node", "intra_node"). Across nodes it is the fastest RDMA type that every
    node has and that joins all their clusters. Where there is none, or vendors differ and the fleet has no unified
    communicator, it is TCP over Ethernet, staged through the host. InfiniBand and RoCE do not interoperate: NCCL does not fall
    back but ends with an error when the link layers of two ends differ (NVIDIA/nccl, src/transport/net_ib). Raises NoRoute
    if nothing joins the devices.
    """
    nodes = dict.fromkeys((device.cluster, device.node) for device in devices)
    if len(nodes) == 1:
        return "intra_node", "intra_node"
    return _joint(fleet, tuple(dict.fromkeys(cluster for cluster, _ in nodes)))


def joint_nics(fleet: Fleet, names: tuple[str, ...]) -> tuple[Nic, ...]:
    """NICs of the first cluster whose type joins all named clusters; RDMA joins unlike vendors only with a unified
    communicator."""
    clusters = [fleet.cluster(name) for name in names]
    direct = len({cluster.node.device.vendor for cluster in clusters}) == 1 or fleet.communicator == "unified"
    return tuple(
        nic
        for nic in clusters[0].node.nics
        if (direct or not nic.spec.rdma)
        and all(cluster.node.nic(nic.kind) is not None for cluster in clusters)
        and all(trunk_path(fleet, names[0], other, nic.kind) is not None for other in names[1:])
    )


def reduces_in_network(fleet: Fleet, devices: Iterable[Device], kind: str) -> bool:
    """Whether switches can add up the buffers of a group over NIC type `kind`: all its nodes are of one cluster, whose NICs of
    this type have `sharp`. NCCL does so from two nodes on (NVIDIA/nccl 5067397c, src/init.cc, COLLNET_NODE_THRESHOLD)."""
    nodes = {(device.cluster, device.node) for device in devices}
    names = {name for name, _ in nodes}
    if len(nodes) == 1 or len(names) > 1:
        return False
    nic = fleet.cluster(names.pop()).node.nic(kind)
    return nic is not None and nic.sharp


@functools.lru_cache(maxsize=1024)
def _joint(fleet: Fleet, names: tuple[str, ...]) -> tuple[str, str]:
    """The (NIC type, transport) between nodes of the named clusters: RDMA first, then the largest bandwidth of the slowest
    cluster."""
    clusters = [fleet.cluster(name) for name in names]
    best: tuple[bool, float, str] | None = None
    for nic in joint_nics(fleet, names):
        nics = [cluster.node.nic(nic.kind) for cluster in clusters]
        slowest = min(n.bandwidth * n.count * n.reached("send_recv") for n in nics if n is not None)
        candidate = (nic.spec.rdma, slowest, nic.kind)
        best = candidate if best is None else max(best, candidate)
    if best is None:
        raise NoRoute(
            f"nothing joins clusters {' and '.join(names)}: no NIC type that all their nodes have is linked between them; "
            f"add a link of type ethernet between them to the topology"
        )
    return best[2], "rdma" if best[0] else "tcp"
