"""Known differences between the lab and the model for one plan, caused by gloo: one line each."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from holmes_sim.lab.payload_rates import PayloadRates
from holmes_sim.lab.traffic import LabPlan, LabTraffic, traffic_of
from holmes_sim.lab.wiring import Host, Wiring, rail
from sim.hardware.cluster import Device
from sim.network.paths import near_nics
from sim.network.routes import by_host
from sim.plan.groups import Group


def notes(plan: LabPlan, wiring: Wiring) -> tuple[str, ...]:
    """Lines for the user; none if no difference is known."""
    traffic = traffic_of(plan)
    groups = [group for group in traffic.groups if group.nic != "intra_node"]
    return (*_efficiencies(plan), *_rails(traffic, wiring, groups), *_shared(traffic, groups))


def _efficiencies(plan: LabPlan) -> Iterator[str]:
    """Operations that are faster in the lab, because a NIC has the rate of the best operation."""
    for kind, operation, ratio in PayloadRates(plan).mixed():
        yield f"{kind}: {operation} is {ratio:.2f} times as fast as modelled; links have the rate of the best operation"


def _rails(plan: LabTraffic, wiring: Wiring, groups: list[Group]) -> Iterator[str]:
    """Pairs of neighbours in a group whose devices are near different NICs; the target's address alone selects the NIC."""
    hosts = {(host.cluster, host.node): host for host in wiring.hosts}
    crossed: dict[str, int] = {}
    for group in groups:
        around = group.ranks if group.kind == "pp" else (*group.ranks, group.ranks[0])
        for a, b in pairwise(plan.placement[rank] for rank in around):
            if (a.cluster, a.node) != (b.cluster, b.node) and not _uses_near_nics(plan, hosts, group.nic, a, b):
                crossed[group.nic] = crossed.get(group.nic, 0) + 1
    for kind, count in crossed.items():
        yield f"{kind}: {count} pairs of neighbouring ranks are near different NICs; the lab connects them over one rail"


def _uses_near_nics(plan: LabTraffic, hosts: dict[tuple[str, int], Host], kind: str, a: Device, b: Device) -> bool:
    """Whether connections between two devices use the NIC near each device, no matter which end connects."""
    near = []
    for device in (a, b):
        node = plan.fleet.cluster(device.cluster).node
        nic = node.nic(kind)
        assert nic is not None
        near.append(near_nics(node.count, nic.count, device.index)[0])
    here, there = (hosts[device.cluster, device.node] for device in (a, b))
    first, second = (
        next(nic for nic in host.of_kind(kind) if nic.index == index) for host, index in zip((here, there), near, strict=True)
    )
    return rail(plan.fleet, here, there, second) == first and rail(plan.fleet, there, here, first) == second


def _shared(plan: LabTraffic, groups: list[Group]) -> Iterator[str]:
    """Collectives with several members on a node: they use the NICs of all members in the model, but of one in gloo's ring."""
    spread: dict[str, int] = {}
    for group in groups:
        members = tuple(plan.placement[rank] for rank in group.ranks) if group.kind != "pp" else ()
        for host in by_host(members):
            device = host[0]
            node = plan.fleet.cluster(device.cluster).node
            nic = node.nic(group.nic)
            assert nic is not None
            rails = {i for one in host for i in near_nics(node.count, nic.count, one.index)}
            spread[group.nic] = max(spread.get(group.nic, 1), len(rails))
    for kind, count in spread.items():
        if count > 1:
            yield f"{kind}: collectives use {count} NICs of a node in the model; gloo sends each over one"
