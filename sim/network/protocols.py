"""Protocols that the links of collectives offer, as NCCL's Simple, LL and LL128 (`sim.hardware.cluster.Protocol`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sim import collectives
from sim.hardware.cluster import Device, Fleet
from sim.hardware.link_spec import LinkSpec
from sim.network.paths import nic_of
from sim.network.routes import Member


def protocols(fleet: Fleet, groups: tuple[Member, ...], operation: str) -> tuple[str, ...]:
    """Names of the protocols that all links of these groups offer.

    Switches reduce for rings inside one node, and inside the nodes of trees over several. An all_to_all between nodes runs
    under the last protocol, that of large payloads: of 64 to 256 KiB on two nodes it takes 37 to 50 us on B200 as on MI355X
    (benchmarks/collectives.yaml), which is near Simple and two to three times as long as LL would take.
    """
    pipelined = all(not group.blocks and collectives.is_pipelined(group.collective, operation) for group in groups)
    together = all(len(group.hosts) == 1 and group.collective == "ring" for group in groups)
    switched = together or (pipelined and all(len(group.hosts) > 1 for group in groups))
    names = offered((spec for group in groups for spec in _specs(fleet, group)), operation, switched, pipelined)
    if any(collectives.is_in_network(group.collective, operation) for group in groups):
        return in_network(names)
    apart = operation == "all_to_all" and any(len(group.hosts) > 1 for group in groups)
    return names[-1:] if apart else names


def offered(specs: Iterable[LinkSpec], operation: str, switched: bool, pipelined: bool) -> tuple[str, ...]:
    """Names of the protocols that all these links offer for an operation; ("",) for none. Links without any are ignored.

    "send_recv" uses no protocol. `switched` says whether switches may reduce; they do so for an all_reduce only. `pipelined`
    says whether the collective is a tree. The last one is that of all operations for large payloads.
    """
    offers = list(dict.fromkeys(spec.protocols for spec in specs if spec.protocols)) if operation != "send_recv" else []
    if not offers:
        return ("",)
    switched = switched and operation == "all_reduce"
    names = [
        {
            p.name
            for p in offer
            if (switched or not p.in_switch) and (pipelined or not p.in_trees) and p.operation in ("", operation)
        }
        for offer in offers
    ]
    return tuple(p.name for p in offers[0] if all(p.name in offered for offered in names)) or ("",)


def in_network(names: tuple[str, ...]) -> tuple[str, ...]:
    """Those of several protocols under which switches between nodes reduce: NCCL has Simple only, with or without switches
    inside the nodes (NVIDIA/nccl 5067397c, src/graph/tuning.cc: LL and LL128 of CollNet are not used)."""
    return tuple(name for name in names if name in ("Simple", "NVLS")) or names[-1:]


def _specs(fleet: Fleet, group: Member) -> Iterator[LinkSpec]:
    """Every interconnect and NIC type that a group may use."""
    hosts = {(host[0].cluster, len(host) > 1) for host in group.hosts}
    return link_specs(fleet, hosts, group.nic if len(group.hosts) > 1 else "")


def link_specs(fleet: Fleet, hosts: Iterable[tuple[str, bool]], nic: str) -> Iterator[LinkSpec]:
    """Interconnects and NICs that a group uses. `hosts`: (cluster, whether it has several members); `nic` may be ""."""
    for name, several in hosts:
        if several:
            yield fleet.cluster(name).node.intra_node
        if nic:
            yield nic_of(fleet, Device(name, 0, 0), nic).spec
