"""The hosts of a plan, in the order in which launchers are to number them.

A host's name is the one that the topology gives (`clusters.X.hosts`), else `ib-node0`. Launchers number hosts by their lowest
rank; where a host's ranks are not consecutive, the shim (`holmes_launch.py`) or a rank file says who is who.
"""

from __future__ import annotations

from dataclasses import dataclass

from sim.hardware.cluster import Cluster, Nic
from sim.plan.plan import Plan


@dataclass(frozen=True, slots=True)
class Host:
    """A host: its name, its node in the plan (`ib/node0`), and the ranks on it with the index of each one's device.

    Ranks stand in the order of their devices, so that the position of a rank is its local rank."""

    name: str
    node: str
    cluster: Cluster
    ranks: tuple[int, ...]
    devices: tuple[int, ...]

    @property
    def is_whole(self) -> bool:
        """Whether the plan uses the first devices of the node without a gap, so that local_rank = device index."""
        return self.devices == tuple(range(len(self.devices)))


def of_plan(plan: Plan) -> tuple[Host, ...]:
    """The hosts that have ranks, by their lowest rank."""
    seats: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for rank, device in enumerate(plan.placement):
        seats.setdefault((device.cluster, device.node), []).append((device.index, rank))
    found = []
    for (name, node), pairs in seats.items():
        cluster = plan.fleet.cluster(name)
        devices, ranks = zip(*sorted(pairs), strict=True)
        found.append(Host(cluster.host(node), f"{name}/node{node}", cluster, ranks, devices))
    return tuple(found)


def in_order(hosts: tuple[Host, ...]) -> bool:
    """Whether ranks run through host after host: then any launcher that fills hosts in order gives each process its rank."""
    return [rank for host in hosts for rank in host.ranks] == list(range(sum(len(host.ranks) for host in hosts)))


def per_host(hosts: tuple[Host, ...]) -> int | None:
    """Ranks of every host where all have equally many, else None."""
    sizes = {len(host.ranks) for host in hosts}
    return sizes.pop() if len(sizes) == 1 else None


def interfaces(nic: Nic) -> tuple[str, ...]:
    """What the host calls the NICs of a type: as the topology says, else mlx5_0 ... for RDMA and eth0 ... for Ethernet."""
    return nic.names or tuple(f"{'mlx5_' if nic.spec.rdma else 'eth'}{index}" for index in range(nic.count))


def assumed(plan: Plan) -> tuple[str, ...]:
    """What the topology does not say of its hosts, cluster by cluster, and what was taken instead."""
    lines = []
    for name in dict.fromkeys(device.cluster for device in plan.placement):
        cluster = plan.fleet.cluster(name)
        if not cluster.hosts:
            lines.append(
                f"Hosts of {name} are called {name}-node0, {name}-node1 ...: say `clusters.{name}.hosts` in the topology."
            )
        for nic in cluster.node.nics:
            if not nic.names:
                taken = ", ".join(interfaces(nic))
                lines.append(f"{nic.kind} NICs of {name} are called {taken}: say `names` of that NIC in the topology.")
    return tuple(lines)
