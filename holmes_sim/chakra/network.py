"""The network of a plan for ASTRA-sim's analytical backend: dimensions, each with one bandwidth and one latency.

NPUs are numbered along the first dimension first. Keys and units are those of astra-network-analytical at 599a047 (input/*.yml,
common/network-parser): bandwidth in GB/s of 2^30 bytes (common/Type.hh, bw_GBps_to_Bpns), latency in ns.
"""

from __future__ import annotations

from collections.abc import Iterator

from holmes_sim.launching import hosts
from holmes_sim.launching.hosts import Host
from sim.plan.plan import Plan
from sim.units import GIBI

NANO = 1e-9
"""Seconds in a nanosecond."""


def unsupported(plan: Plan) -> Iterator[str]:
    """Reasons why dimensions cannot describe the network of a plan; none if they can."""
    all_hosts = hosts.of_plan(plan)
    clusters = list(dict.fromkeys(host.cluster.name for host in all_hosts))
    if len(clusters) > 1:
        yield f"clusters {', '.join(clusters)} have separate networks"
        return
    if len({_ranks(node) for node in hosts.by_node(all_hosts)}) > 1 or not hosts.in_order(all_hosts):
        yield "ranks do not fill the nodes one after the other, with the same number on each"
    fabric = all_hosts[0].cluster.fabric
    if fabric is not None and fabric.oversubscription > 1 and len(hosts.by_node(all_hosts)) > 1:
        yield f"leaves are oversubscribed {fabric.oversubscription:g} to 1"
    if fabric is not None and fabric.roce_share < 1 and "roce" in {group.nic for group in plan.groups}:
        yield f"flows between leaves collide: they reach {fabric.roce_share:g} of the rate"
    nics = sorted({group.nic for group in plan.groups} - {"intra_node"})
    if len(nics) > 1:
        yield f"groups use {' and '.join(nics)}"


def dimensions(plan: Plan) -> tuple[tuple[int, float, float], ...]:
    """(NPUs, bytes/s of one NPU, latency in seconds) of each dimension: a switch in each node, and one between nodes if
    several.

    The plan must have no `unsupported` reason. Bandwidth is the share of the wire rate that large all_reduces reach.
    """
    nodes = hosts.by_node(hosts.of_plan(plan))
    node, here = nodes[0][0].cluster.node, _ranks(nodes[0])
    found: list[tuple[int, float, float]] = []
    if here > 1 or len(nodes) == 1:
        port = node.intra_node.port_bandwidth(here) if here > 1 else node.intra_node.bandwidth
        found.append((here, port * node.intra_node.efficiency_of("all_reduce"), node.intra_node.latency))
    if len(nodes) > 1:
        nic = node.nic(next(group.nic for group in plan.groups if group.nic != "intra_node"))
        assert nic is not None
        share = nic.bandwidth * nic.count * nic.reached("all_reduce") / here
        found.append((len(nodes), share, nic.spec.latency))
    return tuple(found)


def _ranks(node: tuple[Host, ...]) -> int:
    """Number of ranks of a node."""
    return sum(len(host.ranks) for host in node)


def text(found: tuple[tuple[int, float, float], ...]) -> str:
    """The content of network.yml for these dimensions."""
    counts, rates, latencies = zip(*found, strict=True)
    return (
        f"topology: [ {', '.join(['Switch'] * len(counts))} ]\n"
        f"npus_count: [ {', '.join(map(str, counts))} ]\n"
        f"bandwidth: [ {', '.join(f'{rate / GIBI:.6g}' for rate in rates)} ]  # GB/s of 2^30 bytes, of one NPU, each way\n"
        f"latency: [ {', '.join(f'{seconds / NANO:.6g}' for seconds in latencies)} ]  # ns\n"
    )
