"""Sources -> one topology, with what was read, what was assumed and what is missing."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holmes_sim import importers
from holmes_sim.importing import nodes
from holmes_sim.importing.facts import Nics
from holmes_sim.importing.groups import Group, Source, formed
from holmes_sim.importing.nodes import Told
from holmes_sim.profiling import entry, links
from holmes_sim.profiling.found import Joined
from sim.errors import HolmesError
from sim.formats import hostlist
from sim.formats.documents import parse, read_text, to_yaml
from sim.formats.topology import from_document
from sim.formats.topology_facts import TOPOLOGY_FORMAT
from sim.units import bytes_per_second_text, rate_text

MOST_SHARE = 2.0
"""busbw over the wire rate: between two hosts a tree sends half of what busbw counts, and no more than that is saved."""


@dataclass(frozen=True, slots=True)
class Imported:
    """A topology as plain data, and three lists of lines about it."""

    topology: dict[str, Any]
    read: tuple[str, ...]
    assumed: tuple[str, ...]
    missing: tuple[str, ...]

    def facts(self) -> dict[str, Any]:
        """What `holmes-sim import --json` prints."""
        said = {"read": list(self.read), "assumed": list(self.assumed), "missing": list(self.missing)}
        return {"topology": self.topology, **said}

    @property
    def notes(self) -> tuple[str, ...]:
        """The three lists as lines."""
        told = (("Read", self.read), ("Assumed", self.assumed), ("Missing", self.missing))
        return tuple(f"{word}: {line}" for word, lines in told for line in lines)

    def text(self) -> str:
        """The topology as a file, the notes in front as comments."""
        return "".join(f"# {line}\n" for line in self.notes) + to_yaml(self.topology)


def source(given: str) -> tuple[str, Path]:
    """(cluster, file) of `FILE` or `CLUSTER=FILE`; a file of that whole name goes before."""
    cluster, equals, rest = given.partition("=")
    return ("", Path(given)) if not equals or not cluster or "/" in cluster or Path(given).exists() else (cluster, Path(rest))


def imported(given: Sequence[str], name: str) -> Imported:
    """The topology that the sources tell. Raises HolmesError where one is malformed, two contradict, or something lacks."""
    told, sources = Told(), []
    for one in given:
        cluster, path = source(one)
        text = read_text(path, HolmesError)
        importer = importers.recognised(text, str(path))
        facts = importer.read(text, str(path))
        sources.append(Source(facts, cluster))
        told.read.append(f"{path} ({importer.NAME}){f', of cluster {cluster}' if cluster else ''}")
        told.assumed += facts.notes
    groups, strangers, notes = formed(sources)
    told.assumed += strangers + notes
    clusters = {group.name: _cluster(group, sources, told) for group in groups}
    if told.lacking:
        raise HolmesError("\n".join((*told.lacking, *strangers)))
    if len(clusters) > 1:
        told.missing.append(
            "links between the clusters, with bandwidth and latency; no source tells them, no plan spans clusters without"
        )
    files = ", ".join(str(source(one)[1]) for one in given)
    topology = {"format": TOPOLOGY_FORMAT, "name": name, "source": f"holmes-sim import: {files}", "clusters": clusters}
    from_document(parse(name, to_yaml(topology)))
    return Imported(topology, tuple(told.read), tuple(told.assumed), tuple(told.missing))


def _cluster(group: Group, sources: Sequence[Source], told: Told) -> dict[str, Any]:
    """A cluster as it stands in a topology; incomplete where something is lacking."""
    written: dict[str, Any] = {"nodes": group.nodes}
    if group.hosts:
        compressed = hostlist.compress(host.name for host in group.hosts)
        written["hosts"] = list(compressed)
        told.read.append(f"cluster {group.name}: {group.nodes} hosts ({group.hosts[0].where})")
    device, count = nodes.devices(group, told)
    inside, across = ([one for one in group.measured if (one.hosts > 1) is beyond] for beyond in (False, True))
    node: dict[str, Any] = {"devices": {"type": device, "count": count}}
    if inside:
        joined = Joined("measured", links.fit([point for one in inside for point in one.points]), tuple(inside))
        node["intra_node"] = entry.link_facts(joined)
        told.read.append(f"cluster {group.name}: the link inside a node, fitted ({', '.join(one.source for one in inside)})")
    else:
        node["intra_node"] = nodes.joined(group, device, count, told)
    found = nodes.nics(group, told)
    if found:
        node["nics"] = [_nic(one) for one in found]
        if across:
            fastest = max(found, key=lambda one: (one.type != "ethernet", one.bandwidth * one.count))
            node["nics"][found.index(fastest)]["efficiency"] = _efficiency(group, fastest, across, told)
    fabric = _fabric(group, sources, told)
    return written | {"node": node} | ({"fabric": fabric} if fabric else {})


def _nic(one: Nics) -> dict[str, Any]:
    written: dict[str, Any] = {"type": one.type, "bandwidth": rate_text(one.bandwidth), "count": one.count}
    if one.names:
        written["names"] = list(one.names)
    if one.gid_index is not None and one.type == "roce":
        written["gid_index"] = one.gid_index
    return written


def _efficiency(group: Group, nic: Nics, across: Sequence[links.Measured], told: Told) -> float:
    """Share of a node's NICs that collectives between hosts reach: of several operations the middle one."""
    rate = statistics.median(links.fit([point for one in across for point in one.points]).rates.values())
    share = rate / (nic.bandwidth * nic.count)
    files = ", ".join(one.source for one in across)
    if share > MOST_SHARE:
        raise HolmesError(
            f"{files}: {bytes_per_second_text(rate)} between hosts, but {nic.where} has {nic.count} {nic.type} NICs of "
            f"{rate_text(nic.bandwidth)}; they are not of the same nodes"
        )
    told.read.append(f"cluster {group.name}: efficiency {share:.3g} of the {nic.type} NICs, fitted ({files})")
    if share > 1:
        told.assumed.append(
            f"cluster {group.name}: efficiency 1, not {share:.3g}: busbw counts a ring's bytes, and NCCL's tree sends fewer "
            f"between few hosts ({files})"
        )
    return max(round(min(share, 1.0), 3), 0.001)


def _fabric(group: Group, sources: Sequence[Source], told: Told) -> dict[str, Any]:
    """Nodes of a leaf and its oversubscription; empty where there are no two leaves."""
    sizes = Counter(host.leaf for host in group.hosts)
    if len(sizes) < 2:
        return {}
    if "" in sizes:
        told.missing.append(f"cluster {group.name}: the leaves of {sizes['']} of its hosts; it is taken for non-blocking")
        return {}
    most = max(sizes.values())
    if min(sizes.values()) < most:
        told.assumed.append(
            f"cluster {group.name}: leaves of {min(sizes.values())} to {most} nodes; taken as {most} each, in order"
        )
    told.read.append(f"cluster {group.name}: {len(sizes)} leaves ({group.hosts[0].where})")
    known = {leaf: (down, up) for one in sources for leaf, down, up in one.facts.downlinks}
    shares = [known[leaf][0] / known[leaf][1] for leaf in sizes if leaf in known and known[leaf][1]]
    if len(shares) < len(sizes):
        told.missing.append(f"cluster {group.name}: oversubscription of its leaves; 1 is taken; ibnetdiscover would tell")
        return {"nodes_per_leaf": most}
    share = round(max(*shares, 1.0), 3)
    told.read.append(f"cluster {group.name}: oversubscription {share:g}, ports down over ports up")
    return {"nodes_per_leaf": most, "oversubscription": share}
