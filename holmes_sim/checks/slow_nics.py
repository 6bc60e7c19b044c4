"""NICs that are markedly slower than other NICs of their type, or that reach less of their rate than such NICs usually do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holmes_sim.findings import Finding, Subject
from sim.formats import catalog
from sim.formats.documents import KeyPath
from sim.hardware.cluster import Cluster, Nic
from sim.units import BITS_PER_BYTE, GIGA, rate_text

SLOWER = 0.1
"""Share by which NICs must be slower to be reported (a guess: repeated measurements of one fabric differ by less)."""
GENERATION = 0.6
"""Share of the fastest rate below which NICs are taken for an older generation, which is not odd: rates double. Guess."""
WIRE_RATES = tuple(gbit * GIGA / BITS_PER_BYTE for gbit in (10, 25, 40, 50, 56, 100, 200, 400, 800))
"""Rates of ports of InfiniBand and Ethernet; other rates were measured."""


def findings(subject: Subject) -> Iterator[Finding]:
    """Findings for each NIC type of a cluster that is slower than it should be."""
    clusters = subject.topology.fleet.clusters
    for cluster in clusters:
        given = subject.topology.facts()["clusters"][cluster.name]["node"].get("nics", [])
        for index, nic in enumerate(cluster.node.nics):
            path = ("clusters", cluster.name, "node", "nics", index)
            yield from _than_sisters((*path, "bandwidth"), cluster, nic, clusters)
            if "efficiency" in given[index]:
                yield from _than_usual((*path, "efficiency"), nic, float(given[index]["efficiency"]))


def _than_sisters(path: KeyPath, cluster: Cluster, nic: Nic, clusters: Sequence[Cluster]) -> Iterator[Finding]:
    """A finding if NICs of the type are somewhat faster in another cluster."""
    others = [(other.node.nic(nic.kind), other.name) for other in clusters if other is not cluster]
    rate, name = max(((one.bandwidth, name) for one, name in others if one is not None), default=(0.0, ""))
    if nic.bandwidth not in WIRE_RATES and GENERATION * rate <= nic.bandwidth < (1 - SLOWER) * rate:
        yield Finding(
            path,
            f"{nic.kind} NICs of {rate_text(nic.bandwidth)} are {1 - nic.bandwidth / rate:.0%} slower than those of cluster "
            f"{name} ({rate_text(rate)})",
            "groups that span both clusters run at the slower rate",
            f"{rate_text(rate)} if the ports are equal, with the share that was measured as efficiency",
        )


def _than_usual(path: KeyPath, nic: Nic, share: float) -> Iterator[Finding]:
    """A finding if NICs reach a smaller share of their rate than the catalogue has for their type."""
    facts = catalog.nic_facts(nic.kind)
    usual = facts.efficiency.all_reduce
    if facts.host_limit:
        usual = min(usual, facts.host_limit / nic.bandwidth)
    if share < (1 - SLOWER) * usual:
        yield Finding(
            path,
            f"these {nic.kind} NICs reach {share:.0%} of their rate, such NICs usually {usual:.0%}: they are "
            f"{1 - share / usual:.0%} slower",
            "collectives over them take so much longer in every plan",
            "a look at the slow rail: nccl-tests on pairs of nodes, cables, PCIe links (lspci -vv), congestion",
        )
