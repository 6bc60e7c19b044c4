"""Over which of NCCL's networks a group goes, and who can be in one NCCL group at all.

NCCL calls its own networks IB (verbs: InfiniBand and RoCE alike) and Socket (ncclConfig_t.netName; NCCL 2.30,
src/transport/net_ib and net_socket.cc). It does not join InfiniBand and RoCE: it ends with an error and falls back to nothing
(src/transport/net_ib/connect.cc). So a group across fabrics must be told Socket, each group by itself: `NCCL_NET` in the
environment would overrule what all of them were told (src/init.cc), and must stay unset. RCCL has the same names.
"""

from __future__ import annotations

from collections.abc import Iterable

from sim.errors import PlanError
from sim.hardware.transport import common_transport
from sim.plan.groups import Group
from sim.plan.plan import Plan

VERBS = ("infiniband", "roce")
"""NIC types that NCCL reaches by its own network IB. Others need a plugin, of a name of its own (Slingshot: `AWS Libfabric`,
aws-ofi-nccl)."""


def net_name(group: Group) -> str | None:
    """NCCL's network for a group: IB or Socket; None where NCCL chooses, inside a node or on NICs that a plugin serves."""
    return _name(group.nic, group.transport)


def world_net_name(plan: Plan) -> str | None:
    """NCCL's network for the group of all ranks: that of the NICs which join them all, Socket where no one type does."""
    try:
        return _name(*common_transport(plan.fleet, plan.placement))
    except PlanError:
        return "Socket"


def _name(nic: str, transport: str) -> str | None:
    if transport == "tcp":
        return "Socket"
    return "IB" if transport == "rdma" and nic in VERBS else None


def one_vendor(plan: Plan, ranks: Iterable[int]) -> bool:
    """Whether the devices of these ranks are of one vendor, and so have a collective library in common."""
    return len({plan.fleet.spec(plan.placement[rank]).vendor for rank in ranks}) < 2
