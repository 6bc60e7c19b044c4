"""Names that an exported launch needs and that the file lacks: of hosts, of NICs, and the GID index of RoCE.

A fleet of one host needs none of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from holmes_sim.findings import Finding, Subject
from holmes_sim.launching.hosts import interfaces
from sim.formats.documents import KeyPath
from sim.hardware.cluster import Cluster


def findings(subject: Subject) -> Iterator[Finding]:
    """Up to three findings for each cluster: names, GID index, and the interface of sockets."""
    clusters = subject.topology.fleet.clusters
    if sum(cluster.num_hosts for cluster in clusters) == 1:
        return
    for cluster in clusters:
        at: KeyPath = ("clusters", cluster.name)
        yield from _names(at, cluster)
        yield from _gid_index(at, cluster)
        nics = cluster.node.host.nics
        if nics and all(nic.spec.rdma for nic in nics):
            yield Finding(
                (*at, "node", "nics"),
                "the nodes have no Ethernet NIC",
                "launches do not set NCCL_SOCKET_IFNAME; NCCL and gloo choose the interface of their sockets themselves",
                "{type: ethernet, bandwidth: 25 Gbit/s, names: [eno1]}, with the interface over which hosts reach each other",
                for_launch=True,
            )


def _names(at: KeyPath, cluster: Cluster) -> Iterator[Finding]:
    """A finding if names of hosts or NICs are not given."""
    nameless = [nic for nic in cluster.node.host.nics if not nic.names]
    missing = [] if cluster.hosts else ["hosts"]
    missing += [f"{nic.kind} NICs" for nic in nameless]
    if not missing:
        return
    used = [] if cluster.hosts else [f"{cluster.host(0)} ..."]
    used += [f"{interfaces(nic)[0]} ..." for nic in nameless]
    right = [] if cluster.hosts else [f"hosts: {_example(cluster)} in the cluster"]
    rdma, others = any(nic.spec.rdma for nic in nameless), any(not nic.spec.rdma for nic in nameless)
    right += ["names: [mlx5_0, ...] in the RDMA NIC (ibstat)"] if rdma else []
    right += ["names: [eno1] in the Ethernet NIC (ip link)"] if others else []
    yield Finding(
        at,
        f"names are not given: {', '.join(missing)}",
        f"plans do not need them; an exported launch uses {', '.join(used)}",
        f"{'; '.join(right)}; with your names",
        for_launch=True,
    )


def _example(cluster: Cluster) -> str:
    """Names of as many hosts as the cluster has nodes, such as gpu[001-004]."""
    return "gpu001" if cluster.nodes == 1 else f"gpu[001-{cluster.nodes:03}]"


def _gid_index(at: KeyPath, cluster: Cluster) -> Iterator[Finding]:
    """A finding if the GID index of RoCE NICs is not given."""
    for index, nic in enumerate(cluster.node.host.nics):
        if nic.kind == "roce" and nic.gid_index is None:
            yield Finding(
                (*at, "node", "nics", index),
                "the GID index of these roce NICs is not given",
                "NCCL 2.21 and later choose it; older ones need NCCL_IB_GID_INDEX",
                "gid_index: 3, with the index of RoCE v2 that show_gids prints; nothing for NCCL 2.21 and later",
                for_launch=True,
            )
