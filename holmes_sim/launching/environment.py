"""The environment of the collective libraries on each host of a plan.

Names and rules are NCCL's (NVIDIA/nccl 2.30, docs/userguide/source/env.rst; RCCL reads the same): `=` in front of a list makes
names exact, without it mlx5_1 is also mlx5_10. NCCL_NET is never set: it overrides the network that each group is given
(src/init.cc, envConfigOverride). GLOO_SOCKET_IFNAME is one exact name or several.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from holmes_sim.launching import hosts
from holmes_sim.launching.hosts import Host, interfaces
from holmes_sim.launching.nets import VERBS
from sim.errors import PlanError
from sim.hardware.cluster import Nic
from sim.hardware.transport import common_transport
from sim.plan.derived_groups import gradient_groups
from sim.plan.plan import Plan

VISIBLE = {"nvidia": "CUDA_VISIBLE_DEVICES", "amd": "HIP_VISIBLE_DEVICES", "huawei": "ASCEND_RT_VISIBLE_DEVICES"}
"""Vendor -> the variable that says which devices a process may see."""


def of_host(plan: Plan, host: Host) -> dict[str, str]:
    """Variables of a host, in a fixed order: devices it may see, RDMA devices of the plan's groups, interfaces of sockets."""
    found: dict[str, str] = {}
    node = host.cluster.node
    if not host.is_whole and node.device.vendor in VISIBLE:
        found[VISIBLE[node.device.vendor]] = ",".join(map(str, host.devices))
    kinds = open_kinds(plan, host)
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
    return found


def rdma_kinds(plan: Plan, host: Host) -> tuple[str, ...]:
    """Types of the RDMA NICs that groups of this host's ranks go over, those that gradients are reduced in included."""
    here = set(host.ranks)
    groups = (*plan.groups, *gradient_groups(plan))
    return tuple(sorted({group.nic for group in groups if group.transport == "rdma" and not here.isdisjoint(group.ranks)}))


def open_kinds(plan: Plan, host: Host) -> tuple[str, ...]:
    """Types of the RDMA NICs that NCCL is let use on a host: those of the plan's groups, else the fastest that joins it to
    another host of the plan, since a framework builds groups that the plan does not list. One type, for NCCL joins no two."""
    return rdma_kinds(plan, host) or _shared(plan, host)


def _shared(plan: Plan, host: Host) -> tuple[str, ...]:
    here = plan.placement[host.ranks[0]]
    others = {device.cluster: device for device in plan.placement if (device.cluster, device.node) != (here.cluster, here.node)}
    found: list[Nic] = []
    for other in others.values():
        with contextlib.suppress(PlanError):
            kind, transport = common_transport(plan.fleet, (here, other))
            found += [nic for nic in host.cluster.node.nics if nic.kind == kind and transport == "rdma"]
    return tuple(nic.kind for nic in sorted(found, key=lambda nic: nic.bandwidth * nic.count)[-1:])


def against(plan: Plan) -> Iterator[str]:
    """NCCL's list of RDMA devices is one for all groups of a process, and all of it is network IB to NCCL."""
    for host in hosts.of_plan(plan):
        kinds = [kind for kind in rdma_kinds(plan, host) if kind in VERBS]
        if len(kinds) > 1:
            yield (
                f"nic {', '.join(kinds)} of {host.node}: NCCL has one list of RDMA devices for all groups of a process "
                "(NCCL_IB_HCA), and would join one type with the other; groups of each host on one RDMA type"
            )
            return


def text(variables: dict[str, str]) -> str:
    """A file that a shell may source: `export NAME='value'` lines."""
    return "".join(f"export {name}='{value}'\n" for name, value in variables.items())


def assumed(plan: Plan) -> tuple[str, ...]:
    """What was left to the library."""
    lines = []
    clusters = [plan.fleet.cluster(name) for name in dict.fromkeys(device.cluster for device in plan.placement)]
    open_ones = [c.name for c in clusters for nic in c.node.nics if nic.kind == "roce" and nic.gid_index is None]
    if open_ones:
        lines.append(
            f"RoCE's GID index of {', '.join(open_ones)} is not known: NCCL 2.21 and later choose it (RoCE v2); "
            "say `gid_index` of that NIC in the topology to fix it."
        )
    bare = [c.name for c in clusters if all(nic.spec.rdma for nic in c.node.nics)]
    if bare and len(hosts.of_plan(plan)) > 1:
        lines.append(
            f"Nodes of {', '.join(bare)} have no Ethernet NIC in the topology: NCCL and gloo choose the interface of their "
            "sockets themselves (NCCL_SOCKET_IFNAME is not set)."
        )
    used = {kind for host in hosts.of_plan(plan) for kind in rdma_kinds(plan, host)}
    for kind in sorted(used - set(VERBS)):
        lines.append(f"NCCL reaches {kind} by a plug-in, which must be installed and is chosen by NCCL itself.")
    return tuple(lines)
