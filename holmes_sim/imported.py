"""Import a topology from files of other tools, with notes on what was read, assumed and missing."""

from __future__ import annotations

import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from holmes_sim import importers
from holmes_sim.importing import nodes
from holmes_sim.importing.facts import SCHEDULER, Facts, Host, Nics
from holmes_sim.importing.groups import Group, Source, group_hosts
from holmes_sim.importing.nodes import ImportNotes
from holmes_sim.profiling import entry, links
from holmes_sim.profiling.results import LinkProfile
from sim.errors import HolmesError
from sim.formats import hostlist
from sim.formats.documents import KeyPath, parse, read_text, to_yaml
from sim.formats.topology import from_document
from sim.formats.topology_facts import TOPOLOGY_FORMAT
from sim.units import bytes_per_second_text, rate_text

FORMAT = "holmes-sim/import/1"
MAX_EFFICIENCY = 2.0
"""Maximum plausible ratio of busbw to the wire rate: between two hosts a tree sends half of the bytes that busbw counts, and no
algorithm sends less."""


GuessNics = Callable[[str, int], Nics | None]
"""NICs of a node with so many devices of a type, a guess; None: there is none, and the fact is missing."""


@dataclass(frozen=True, slots=True)
class SourceText:
    """The text of a source and its name in messages; the cluster that it was given for, or the host that it was read on (empty:
    it is for all clusters, or for all nodes).
    """

    name: str
    text: str
    cluster: str = ""
    host: str = ""


@dataclass(frozen=True, slots=True)
class Imported:
    """A topology as plain data, and lines that say what was read, assumed and is missing.

    `origins`: path in the topology -> where its value comes from.
    """

    topology: dict[str, Any]
    read: tuple[str, ...]
    assumed: tuple[str, ...]
    missing: tuple[str, ...]
    origins: dict[KeyPath, str] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        """What `holmes-sim import --json` prints (format holmes-sim/import/1)."""
        notes = {"read": list(self.read), "assumed": list(self.assumed), "missing": list(self.missing)}
        return {"format": FORMAT, "topology": self.topology, **notes}

    @property
    def notes(self) -> tuple[str, ...]:
        """All notes as lines."""
        titled = (("Read", self.read), ("Assumed", self.assumed), ("Missing", self.missing))
        return tuple(f"{word}: {line}" for word, lines in titled for line in lines)

    def text(self) -> str:
        """The topology as a YAML file that begins with the notes as comments."""
        return "".join(f"# {line}\n" for line in self.notes) + to_yaml(self.topology)


def source(given: str) -> tuple[str, Path]:
    """Split `FILE` or `CLUSTER=FILE` into (cluster, file). If a file with the whole name exists, it is taken as a file."""
    cluster, equals, rest = given.partition("=")
    return ("", Path(given)) if not equals or not cluster or "/" in cluster or Path(given).exists() else (cluster, Path(rest))


def imported(given: Sequence[str], name: str) -> Imported:
    """Combine files into a topology. Raises HolmesError if one is malformed, two contradict, or a fact is missing."""
    parts = [source(one) for one in given]
    texts = [SourceText(str(path), read_text(path, HolmesError), cluster) for cluster, path in parts]
    return combined(texts, name, f"holmes-sim import: {', '.join(text.name for text in texts)}")


def combined(texts: Sequence[SourceText], name: str, made: str, guess: GuessNics = lambda device, count: None) -> Imported:
    """Combine texts into a topology; `made` says how, `guess` gives the NICs of nodes whose NICs no source gives. Raises
    HolmesError if a text is malformed, two contradict, or a fact is missing.
    """
    summary, sources = ImportNotes(), []
    on_hosts: dict[str, list[str]] = defaultdict(list)
    noted: dict[str, list[str]] = defaultdict(list)
    for one in texts:
        importer = importers.recognised(one.text, one.name)
        facts = importer.read(one.text, one.name)
        sources.append(Source(_on_host(facts, one), one.cluster))
        if one.host:
            on_hosts[importer.NAME].append(one.host)
            for note in facts.notes:
                noted[re.sub(rf"^{re.escape(one.name)}(?::\d+)?: ", "", note)].append(one.host)
        else:
            summary.read.append(f"{one.name} ({importer.NAME}){f', of cluster {one.cluster}' if one.cluster else ''}")
            summary.assumed += facts.notes
    summary.assumed += (f"{', '.join(hostlist.compress(hosts))}: {note}" for note, hosts in noted.items())
    summary.read += (f"{', '.join(hostlist.compress(hosts))} ({kind})" for kind, hosts in on_hosts.items())
    groups, strangers, notes = group_hosts(sources)
    summary.assumed += strangers + notes
    clusters = {group.name: _cluster(group, sources, summary, guess) for group in groups}
    if summary.blocking:
        raise HolmesError("\n".join((*summary.blocking, *strangers)))
    if len(clusters) > 1:
        summary.missing.append(
            "links between the clusters, with bandwidth and latency; no source has them; without them no plan spans clusters"
        )
    topology = {"format": TOPOLOGY_FORMAT, "name": name, "source": made, "clusters": clusters}
    from_document(parse(name, to_yaml(topology)))
    return Imported(topology, tuple(summary.read), tuple(summary.assumed), tuple(summary.missing), summary.origins)


def import_(*sources: str | Path, name: str = "imported") -> Imported:
    """A topology from files (`FILE` or `CLUSTER=FILE`) of Slurm, nvidia-smi, NCCL and others, as `holmes-sim import` makes it.

    `.text()` of the result is a topology file. Raises HolmesError as `imported`."""
    return imported([str(one) for one in sources], name)


def _on_host(facts: Facts, one: SourceText) -> Facts:
    """The facts of a text; those of a text that was read on a host hold for this host."""
    if not one.host:
        return facts
    parts = tuple(replace(part, hosts=(one.host,)) for part in facts.parts)
    return replace(facts, hosts=(Host(one.host, f"host {one.host}"),), coverage=SCHEDULER, parts=parts)


def _cluster(group: Group, sources: Sequence[Source], summary: ImportNotes, guess: GuessNics) -> dict[str, Any]:
    """A cluster as plain data of a topology; incomplete if a required fact is missing (`summary.blocking`)."""
    written: dict[str, Any] = {"nodes": group.nodes}
    if group.hosts:
        compressed = hostlist.compress(host.name for host in group.hosts)
        written["hosts"] = list(compressed)
        summary.read.append(f"cluster {group.name}: {group.nodes} hosts ({group.hosts[0].where})")
        summary.origins["clusters", group.name, "hosts"] = f"read from {group.hosts[0].where}"
        summary.origins["clusters", group.name, "nodes"] = "as many as hosts were found"
    device, count = nodes.devices(group, summary)
    inside, across = ([one for one in group.measured if (one.hosts > 1) is beyond] for beyond in (False, True))
    node: dict[str, Any] = {"devices": {"type": device, "count": count}}
    if inside:
        joined = LinkProfile("measured", links.fit([point for one in inside for point in one.points]), tuple(inside))
        node["intra_node"] = entry.link_facts(joined)
        files = ", ".join(one.source for one in inside)
        summary.read.append(f"cluster {group.name}: the link inside a node, fitted ({files})")
        summary.note_origin(group, "intra_node", f"measured: {files}")
    else:
        node["intra_node"] = nodes.interconnect(group, device, count, summary)
    if memory := nodes.host_memory(group, summary):
        node["host_memory"] = memory
    found = nodes.nics(group, summary, guess(device, count) if device else None)
    if found:
        node["nics"] = [_nic(one) for one in found]
        if across:
            fastest = max(found, key=lambda one: (one.type != "ethernet", one.bandwidth * one.count))
            node["nics"][found.index(fastest)]["efficiency"] = _efficiency(group, fastest, across, summary)
    fabric = _fabric(group, sources, summary)
    return written | {"node": node} | ({"fabric": fabric} if fabric else {})


def _nic(one: Nics) -> dict[str, Any]:
    written: dict[str, Any] = {"type": one.type, "bandwidth": rate_text(one.bandwidth), "count": one.count}
    if one.names:
        written["names"] = list(one.names)
    if one.gid_index is not None and one.type == "roce":
        written["gid_index"] = one.gid_index
    return written


def _efficiency(group: Group, nic: Nics, across: Sequence[links.LinkMeasurement], summary: ImportNotes) -> float:
    """Share of the rate of a node's NICs that collectives between hosts reach, the median over operations."""
    rate = statistics.median(links.fit([point for one in across for point in one.points]).rates.values())
    share = rate / (nic.bandwidth * nic.count)
    files = ", ".join(one.source for one in across)
    if share > MAX_EFFICIENCY:
        raise HolmesError(
            f"{files}: {bytes_per_second_text(rate)} between hosts, but {nic.where} has {nic.count} {nic.type} NICs of "
            f"{rate_text(nic.bandwidth)}; the two describe different nodes"
        )
    summary.read.append(f"cluster {group.name}: efficiency {share:.3g} of the {nic.type} NICs, fitted ({files})")
    if share > 1:
        summary.assumed.append(
            f"cluster {group.name}: efficiency 1, not {share:.3g}: busbw counts a ring's bytes, and NCCL's tree sends fewer "
            f"between few hosts ({files})"
        )
    return max(round(min(share, 1.0), 3), 0.001)


def _fabric(group: Group, sources: Sequence[Source], summary: ImportNotes) -> dict[str, Any]:
    """Nodes per leaf and oversubscription of a cluster; empty if it has fewer than two leaves."""
    sizes = Counter(host.leaf for host in group.hosts)
    if len(sizes) < 2:
        return {}
    if "" in sizes:
        summary.missing.append(
            f"cluster {group.name}: the leaves of {sizes['']} of its hosts; a non-blocking fabric is assumed"
        )
        return {}
    most = max(sizes.values())
    if min(sizes.values()) < most:
        summary.assumed.append(
            f"cluster {group.name}: leaves of {min(sizes.values())} to {most} nodes; {most} per leaf are assumed, in order"
        )
    summary.read.append(f"cluster {group.name}: {len(sizes)} leaves ({group.hosts[0].where})")
    known = {leaf: (down, up) for one in sources for leaf, down, up in one.facts.downlinks}
    shares = [known[leaf][0] / known[leaf][1] for leaf in sizes if leaf in known and known[leaf][1]]
    if len(shares) < len(sizes):
        summary.missing.append(
            f"cluster {group.name}: oversubscription of its leaves; 1 is assumed; output of ibnetdiscover has it"
        )
        return {"nodes_per_leaf": most}
    share = round(max(*shares, 1.0), 3)
    summary.read.append(f"cluster {group.name}: oversubscription {share:g}, downlink ports over uplink ports")
    return {"nodes_per_leaf": most, "oversubscription": share}
