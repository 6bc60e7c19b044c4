"""The network of a plan as ASTRA-sim's analytical backend knows networks: dimensions, each of one bandwidth and latency.

NPU numbers run through the first dimension first. Keys and units are of astra-network-analytical at 599a047 (input/*.yml,
common/network-parser): bandwidth in GB/s of 2^30 bytes (common/Type.hh, bw_GBps_to_Bpns), latency in ns.
"""

from __future__ import annotations

from collections.abc import Iterator

from holmes_sim.launching import hosts
from sim.plan.plan import Plan
from sim.units import GIBI

NANO = 1e-9


def unlike(plan: Plan) -> Iterator[str]:
    """Why dimensions cannot tell the plan's network; nothing where they can."""
    all_hosts = hosts.of_plan(plan)
    clusters = list(dict.fromkeys(host.cluster.name for host in all_hosts))
    if len(clusters) > 1:
        yield f"clusters {', '.join(clusters)} have networks of their own"
        return
    if hosts.per_host(all_hosts) is None or not hosts.in_order(all_hosts):
        yield "ranks do not fill host after host alike"
    fabric = all_hosts[0].cluster.fabric
    if fabric is not None and fabric.oversubscription > 1 and len(all_hosts) > 1:
        yield f"leaves are oversubscribed {fabric.oversubscription:g} to 1"
    nics = sorted({group.nic for group in plan.groups} - {"intra_node"})
    if len(nics) > 1:
        yield f"groups go over {' and '.join(nics)}"


def dimensions(plan: Plan) -> tuple[tuple[int, float, float], ...]:
    """(NPUs, bytes a second of one, seconds) of a switch in each host and of one over the hosts, where there are several.

    Of a plan that nothing is `unlike` in; what large all_reduces reach of the wire rate."""
    all_hosts = hosts.of_plan(plan)
    node, here = all_hosts[0].cluster.node, len(all_hosts[0].ranks)
    found: list[tuple[int, float, float]] = []
    if here > 1 or len(all_hosts) == 1:
        port = node.intra_node.port_bandwidth(here) if here > 1 else node.intra_node.bandwidth
        found.append((here, port * node.intra_node.efficiency_of("all_reduce"), node.intra_node.latency))
    if len(all_hosts) > 1:
        nic = node.nic(next(group.nic for group in plan.groups if group.nic != "intra_node"))
        assert nic is not None
        share = nic.bandwidth * nic.count * nic.spec.efficiency_of("all_reduce") / here
        found.append((len(all_hosts), share, nic.spec.latency))
    return tuple(found)


def text(found: tuple[tuple[int, float, float], ...]) -> str:
    """network.yml of these dimensions."""
    counts, rates, latencies = zip(*found, strict=True)
    return (
        f"topology: [ {', '.join(['Switch'] * len(counts))} ]\n"
        f"npus_count: [ {', '.join(map(str, counts))} ]\n"
        f"bandwidth: [ {', '.join(f'{rate / GIBI:.6g}' for rate in rates)} ]  # GB/s of 2^30 bytes, of one NPU, each way\n"
        f"latency: [ {', '.join(f'{seconds / NANO:.6g}' for seconds in latencies)} ]  # ns\n"
    )
