"""NCCL networks: which network a group uses, and which ranks can be in one NCCL group.

NCCL names its own networks IB (verbs: InfiniBand and RoCE) and Socket (ncclConfig_t.netName; NCCL 2.30, src/transport/net_ib
and net_socket.cc). It does not join InfiniBand with RoCE: it fails with an error and does not fall back to Socket
(src/transport/net_ib/connect.cc). So each group across fabrics must be set to Socket. `NCCL_NET` in the environment would
override the setting of all groups (src/init.cc) and must stay unset. RCCL uses the same names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from planner.target import Devices
from sim.errors import NoRoute
from sim.hardware.cluster import Fleet
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


def other_networks(fleet: Fleet, pipelines: Iterable[Devices], every: Devices) -> Iterator[str]:
    """The first of the pipelines whose network is not that of `every` rank, for frameworks whose messages use the group of all
    ranks. Pipelines are a device of each stage, `every` has devices of all nodes."""
    world = joining(fleet, every)[1]
    for devices in pipelines:
        nic, name = joining(fleet, devices)
        if name not in (None, world):
            yield f"groups pp over {nic}: messages use the group of all ranks, over {world}; one fabric for all ranks"
            return


def joining(fleet: Fleet, devices: Devices) -> tuple[str, str | None]:
    """The NIC type and the NCCL network of a group of these devices, Socket where no type joins them; None as in `net_name`."""
    try:
        nic, transport = common_transport(fleet, devices)
    except NoRoute:
        return "ethernet", "Socket"
    return nic, _name(nic, transport)


def _name(nic: str, transport: str) -> str | None:
    if transport == "tcp":
        return "Socket"
    return "IB" if transport == "rdma" and nic in VERBS else None


def one_vendor(plan: Plan | PipelinesPlan, ranks: Iterable[int]) -> bool:
    """Whether the devices of these ranks have one vendor, and so share a collective library."""
    return len({plan.fleet.spec(plan.placement[rank]).vendor for rank in ranks}) < 2
