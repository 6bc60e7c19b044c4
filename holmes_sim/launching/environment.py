"""Environment variables of the collective libraries on each host of a plan.

Names and rules are NCCL's (NVIDIA/nccl 2.30, docs/userguide/source/env.rst; RCCL reads the same variables). A leading `=` makes
the names in a list exact; without it mlx5_1 also matches mlx5_10. NCCL_NET is never set, because it overrides the network that
each group is given (src/init.cc, envConfigOverride). GLOO_SOCKET_IFNAME takes exact names.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

from holmes_sim.launching import hosts
from holmes_sim.launching.hosts import Host, Placed, interfaces
from holmes_sim.launching.nets import VERBS
from sim.disaggregation.plan import DisaggregatedPlan
from sim.errors import NoRoute
from sim.hardware.cluster import Device, Nic
from sim.hardware.transport import common_transport
from sim.network import tcp
from sim.plan.derived_groups import every_group
from sim.plan.groups import Group
from sim.plan.plan import Plan
from sim.units import size_text

VISIBLE = {"nvidia": "CUDA_VISIBLE_DEVICES", "amd": "HIP_VISIBLE_DEVICES", "huawei": "ASCEND_RT_VISIBLE_DEVICES"}
"""Vendor -> the variable that lists the devices visible to a process."""
DOMAIN = "NCCL 2.25.2 or later joins them where the IMEX service runs on all of them (NCCL_MNNVL_ENABLE is not set)"
"""What NVLink between hosts needs (docs.nvidia.com, multi-node NVLink systems: tuning guide, page NCCL, and user guide)."""


class Environments:
    """Environment variables of the hosts of a plan; what all hosts share is computed once (large plans have many hosts)."""

    def __init__(self, plan: Placed):
        self.fleet, self._placement = plan.fleet, plan.placement
        self._kinds: list[set[str]] = [set() for _ in plan.placement]
        for group in _groups(plan):
            for rank in group.ranks if group.transport == "rdma" else ():
                self._kinds[rank].add(group.nic)
        self._sockets = sockets(plan)
        firsts: dict[tuple[str, int], tuple[int, Device]] = {}
        for rank, device in enumerate(plan.placement):
            host, _ = plan.fleet.cluster(device.cluster).on_host(device)
            firsts.setdefault((device.cluster, host), (rank, device))
        self._hosts: dict[str, list[tuple[int, Device]]] = {}  # cluster -> first rank of each host, and its device
        for (cluster, _), first in firsts.items():
            self._hosts.setdefault(cluster, []).append(first)

    def of_host(self, host: Host) -> dict[str, str]:
        """Variables of a host, in a fixed order: visible devices, RDMA devices of the plan's groups, interfaces for sockets."""
        found: dict[str, str] = {}
        node = host.cluster.node.host
        if not host.is_whole and node.device.vendor in VISIBLE:
            found[VISIBLE[node.device.vendor]] = ",".join(map(str, host.devices))
        kinds = self.open_kinds(host)
        used = [nic for nic in node.nics if nic.kind in kinds and nic.kind in VERBS]
        ethernet = [nic for nic in node.nics if not nic.spec.rdma]
        if used:
            found["NCCL_IB_HCA"] = "=" + ",".join(name for nic in used for name in interfaces(nic))
            for nic in used:
                if nic.kind == "roce" and nic.gid_index is not None:
                    found["NCCL_IB_GID_INDEX"] = str(nic.gid_index)
        elif not kinds:
            found["NCCL_IB_DISABLE"] = "1"
        if ethernet:
            names = [name for nic in ethernet for name in interfaces(nic)]
            found["NCCL_SOCKET_IFNAME"] = "=" + ",".join(names)
            found["GLOO_SOCKET_IFNAME"] = names[0]
            found |= self._sockets
        return found

    def rdma_kinds(self, host: Host) -> tuple[str, ...]:
        """Types of the RDMA NICs used by groups of this host's ranks, including the groups that reduce gradients."""
        return tuple(sorted(set().union(*(self._kinds[rank] for rank in host.ranks))))

    def open_kinds(self, host: Host) -> tuple[str, ...]:
        """Types of the RDMA NICs that NCCL may use on a host: those of the plan's groups. Without such groups: the type with
        the highest bandwidth that joins the host to another host of the plan, because a framework builds groups that the plan
        does not list, and a domain may lack its NVLink. That is a single type, because NCCL does not join two types."""
        return self.rdma_kinds(host) or self._shared(host)

    def _shared(self, host: Host) -> tuple[str, ...]:
        mine = host.ranks
        here = self._placement[min(mine)]
        others = (next((first for first in firsts if first[0] not in mine), None) for firsts in self._hosts.values())
        found: list[Nic] = []
        for _, other in sorted((first for first in others if first is not None), key=lambda first: first[0]):
            if (here.cluster, here.node) == (other.cluster, other.node):
                found += [nic for nic in host.cluster.node.nics if nic.spec.rdma]
                continue
            with contextlib.suppress(NoRoute):
                kind, transport = common_transport(self.fleet, (here, other))
                found += [nic for nic in host.cluster.node.nics if nic.kind == kind and transport == "rdma"]
        return tuple(nic.kind for nic in sorted(found, key=lambda nic: nic.bandwidth * nic.count)[-1:])


def unsupported(plan: Plan) -> Iterator[str]:
    """Hosts whose groups use several RDMA types: NCCL_IB_HCA is one list for all groups of a process, and NCCL does not
    distinguish types in it."""
    ranks: dict[str, set[int]] = {}
    for group in every_group(plan):
        if group.transport == "rdma" and group.nic in VERBS:
            ranks.setdefault(group.nic, set()).update(group.ranks)
    clusters = [{plan.placement[rank].cluster for rank in own} for own in ranks.values()]
    if sum(map(len, clusters)) == len(set[str]().union(*clusters)):  # no cluster has groups of two types
        return
    environments = Environments(plan)
    for host in hosts.of_plan(plan):
        kinds = [kind for kind in environments.rdma_kinds(host) if kind in VERBS]
        if len(kinds) > 1:
            yield (
                f"nic {', '.join(kinds)} of {host.node}: NCCL has one list of RDMA devices for all groups of a process "
                "(NCCL_IB_HCA), and would join one type with the other; groups of each host on one RDMA type"
            )
            return


def _groups(plan: Placed) -> tuple[Group, ...]:
    """The groups of a plan that NCCL may join: none of a plan with two sets of ranks, whose groups are gloo's."""
    return () if isinstance(plan, DisaggregatedPlan) else every_group(plan)


def sockets(plan: Placed) -> dict[str, str]:
    """NCCL's threads and sockets that give each rank the TCP connections that the prediction assumes; empty for one.

    Their product is the number of connections to a peer (NCCL's documentation, NCCL_NSOCKS_PERTHREAD)."""
    connections = max((trunk.connections for trunk in tcp.used(plan.fleet, plan.placement, _groups(plan))), default=1)
    if connections == 1:
        return {}
    threads = math.gcd(connections, 4)
    return {"NCCL_SOCKET_NTHREADS": str(threads), "NCCL_NSOCKS_PERTHREAD": str(connections // threads)}


def text(variables: dict[str, str]) -> str:
    """A file that a shell can source: lines `export NAME='value'`."""
    return "".join(f"export {name}='{value}'\n" for name, value in variables.items())


def assumed(plan: Placed) -> tuple[str, ...]:
    """Settings that are left to the library."""
    lines = []
    clusters = [plan.fleet.cluster(name) for name in dict.fromkeys(device.cluster for device in plan.placement)]
    open_ones = [c.name for c in clusters for nic in c.node.nics if nic.kind == "roce" and nic.gid_index is None]
    if open_ones:
        lines.append(
            f"RoCE's GID index of {', '.join(open_ones)} is not known: NCCL 2.21 and later choose it (RoCE v2); "
            "set `gid_index` of that NIC in the topology to fix it."
        )
    bare = [c.name for c in clusters if all(nic.spec.rdma for nic in c.node.nics)]
    if bare and len(hosts.of_plan(plan)) > 1:
        lines.append(
            f"Nodes of {', '.join(bare)} have no Ethernet NIC in the topology: NCCL and gloo choose the interface of their "
            "sockets themselves (NCCL_SOCKET_IFNAME is not set)."
        )
    environments = Environments(plan)
    used = {kind for host in hosts.of_plan(plan) for kind in environments.rdma_kinds(host)}
    for kind in sorted(used - set(VERBS)):
        lines.append(f"NCCL reaches {kind} by a plug-in, which must be installed and is chosen by NCCL itself.")
    for trunk in tcp.used(plan.fleet, plan.placement, _groups(plan)):
        if trunk.window or trunk.latency >= tcp.LONG:
            window = trunk.window or 2 * trunk.latency * trunk.bandwidth
            lines.append(
                f"TCP between {' and '.join(trunk.between)} has windows of {size_text(window)}: the largest values of "
                "net.ipv4.tcp_rmem and tcp_wmem allow twice that on every host."
            )
    joined = [c.name for c in clusters if c.node.hosts > 1]
    if joined:
        lines.append(f"The hosts of {', '.join(joined)} form NVLink domains: {DOMAIN}.")
    return tuple(lines)
