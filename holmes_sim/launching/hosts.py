"""The hosts of a plan, in the order in which launchers must number them.

The name of a host comes from the topology (`clusters.X.hosts`), otherwise it is of the form `ib-node0`. A node of a plan is one
host, or several in an NVLink domain. Hosts are numbered by
their lowest rank. Where ranks of a host are not consecutive, the shim (`holmes_launch.py`) or a rank file assigns ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from sim.disaggregation.plan import DisaggregatedPlan
from sim.hardware.cluster import Cluster, Nic
from sim.plan.pipelines import PipelinesPlan
from sim.plan.plan import Plan

Placed: TypeAlias = Plan | PipelinesPlan | DisaggregatedPlan
"""A plan that gives each rank a device."""


@dataclass(frozen=True, slots=True)
class Host:
    """A host: name, node in the plan (`ib/node0`), its ranks and the index of each one's device on the host.

    Ranks are in the order of their devices, so that the position of a rank is its local rank.
    """

    name: str
    node: str
    cluster: Cluster
    ranks: tuple[int, ...]
    devices: tuple[int, ...]

    @property
    def is_whole(self) -> bool:
        """Whether the plan uses the first devices of the host without a gap, so that local rank and device index are equal."""
        return self.devices == tuple(range(len(self.devices)))


def of_plan(plan: Placed) -> tuple[Host, ...]:
    """The hosts that have ranks, by lowest rank."""
    seats: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for rank, device in enumerate(plan.placement):
        number, index = plan.fleet.cluster(device.cluster).on_host(device)
        seats.setdefault((device.cluster, number), []).append((index, rank))
    found = []
    for (name, number), pairs in seats.items():
        cluster = plan.fleet.cluster(name)
        devices, ranks = zip(*sorted(pairs), strict=True)
        found.append(Host(cluster.host(number), f"{name}/node{number // cluster.node.hosts}", cluster, ranks, devices))
    return tuple(found)


def by_node(hosts: tuple[Host, ...]) -> tuple[tuple[Host, ...], ...]:
    """Hosts grouped by node, in order: several in an NVLink domain."""
    nodes: dict[str, list[Host]] = {}
    for host in hosts:
        nodes.setdefault(host.node, []).append(host)
    return tuple(tuple(own) for own in nodes.values())


def in_order(hosts: tuple[Host, ...]) -> bool:
    """Whether ranks are consecutive over the hosts in order. Then any launcher that fills hosts in order assigns the plan's
    ranks."""
    return [rank for host in hosts for rank in host.ranks] == list(range(sum(len(host.ranks) for host in hosts)))


def per_host(hosts: tuple[Host, ...]) -> int | None:
    """Number of ranks per host if it is the same on all hosts, else None."""
    sizes = {len(host.ranks) for host in hosts}
    return sizes.pop() if len(sizes) == 1 else None


def unconstrained(cluster: Cluster) -> str:
    """Words on what a scheduler that chooses any hosts of a cluster does not keep: NVLink domains and leaf switches."""
    facts = ["NVLink domain"] * (cluster.node.hosts > 1) + ["leaf switch"] * (cluster.fabric is not None)
    return "".join(f"; the {fact} of a node is not constrained" for fact in facts)


def interfaces(nic: Nic) -> tuple[str, ...]:
    """Interface names of a NIC type on a host: from the topology, otherwise mlx5_0 ... for RDMA and eth0 ... for Ethernet."""
    return nic.names or tuple(f"{'mlx5_' if nic.spec.rdma else 'eth'}{index}" for index in range(nic.count))


def assumed(plan: Placed) -> tuple[str, ...]:
    """Facts about hosts that the topology does not specify, by cluster, with the values used instead."""
    lines = []
    for name in dict.fromkeys(device.cluster for device in plan.placement):
        cluster = plan.fleet.cluster(name)
        if not cluster.hosts:
            lines.append(
                f"Hosts of {name} are called {cluster.host(0)}, {cluster.host(1)} ...: "
                f"say `clusters.{name}.hosts` in the topology."
            )
        for nic in cluster.node.host.nics:
            if not nic.names:
                taken = ", ".join(interfaces(nic))
                lines.append(f"{nic.kind} NICs of {name} are called {taken}: say `names` of that NIC in the topology.")
    return tuple(lines)
