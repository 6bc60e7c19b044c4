"""NCCL networks: which network a group uses, and which ranks can be in one NCCL group.

NCCL names its own networks IB (verbs: InfiniBand and RoCE) and Socket (ncclConfig_t.netName; NCCL 2.30, src/transport/net_ib
and net_socket.cc). It does not join InfiniBand with RoCE: it fails with an error and does not fall back to Socket
(src/transport/net_ib/connect.cc). So each group across fabrics must be set to Socket. `NCCL_NET` in the environment would
override the setting of all groups (src/init.cc) and must stay unset. RCCL uses the same names.
"""

from __future__ import annotations

from collections.abc import Iterable

from sim.errors import NoRoute
from sim.hardware.transport import common_transport
from sim.plan.groups import Group
from sim.plan.pipelines import PipelinesPlan
from sim.plan.plan import Plan

VERBS = ("infiniband", "roce")
"""NIC types that NCCL reaches through its own network IB. Others need a plugin with its own network name (Slingshot
and EFA: `AWS Libfabric`, aws-ofi-nccl)."""


def net_name(group: Group) -> str | None:
    """NCCL network of a group: IB or Socket; None where NCCL chooses, inside a node or on NICs that need a plugin."""
    return _name(group.nic, group.transport)


def world_net_name(plan: Plan) -> str | None:
    """NCCL network of the group of all ranks: that of the NIC type which joins them all, Socket if no single type does."""
    try:
        return _name(*common_transport(plan.fleet, plan.placement))
    except NoRoute:
        return "Socket"


def _name(nic: str, transport: str) -> str | None:
    if transport == "tcp":
        return "Socket"
    return "IB" if transport == "rdma" and nic in VERBS else None


def one_vendor(plan: Plan | PipelinesPlan, ranks: Iterable[int]) -> bool:
    """Whether the devices of these ranks have one vendor, and so share a collective library."""
    return len({plan.fleet.spec(plan.placement[rank]).vendor for rank in ranks}) < 2
