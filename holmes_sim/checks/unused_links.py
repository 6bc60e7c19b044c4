"""Links between clusters that no plan can use."""

from __future__ import annotations

from collections.abc import Iterator

from holmes_sim.findings import Finding, Subject
from holmes_sim.network_use import chosen, network_use
from sim.hardware.cluster import Fleet, Trunk
from sim.hardware.transport import trunk_between


def findings(subject: Subject) -> Iterator[Finding]:
    """One finding for each link that is on no path of a group of clusters."""
    fleet = subject.topology.fleet
    used = network_use(fleet).trunks
    for index, trunk in enumerate(fleet.trunks):
        if trunk in used:
            continue
        why, better = _reason(fleet, trunk)
        yield Finding(
            ("links", index), f"no plan can use this {trunk.kind} link: {why}", "no traffic of a step uses it", better
        )


def _reason(fleet: Fleet, trunk: Trunk) -> tuple[str, str]:
    """(why no plan can use a link, what would be right)."""
    a, b = trunk.between
    if trunk_between(fleet, a, b, trunk.kind) != trunk:
        return "another link of this type between the clusters has less latency or more bandwidth", "one link with their sum"
    instead = chosen(fleet, (a, b))
    if instead and instead != trunk.kind:
        return f"{a} and {b} communicate over {instead}", "nothing if the link carries other traffic; else leave it out"
    vendors = {fleet.cluster(name).node.device.vendor for name in (a, b)}
    if len(vendors) > 1 and fleet.communicator == "vendor":
        return (
            f"the devices of {a} and {b} are of different vendors ({', '.join(sorted(vendors))}), whose libraries do not "
            "communicate over RDMA",
            "a link of type ethernet, or communicator: unified if one library joins these devices",
        )
    return "a path over other links has less latency", "the latency of this link, or leave it out"
