"""Hosts and parts of all sources -> groups of alike hosts, which become clusters.

A host belongs to the cluster that a source was given for (`CLUSTER=FILE`) where that is one of the places above it, else to
the topmost of them: switches that nothing joins are fabrics of their own. Hosts of one cluster that are told to have different
parts are told apart: the nodes of a cluster are alike.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from holmes_sim.importing.facts import RUN, Facts, Host, Parts
from holmes_sim.profiling.links import Measured
from sim.errors import HolmesError

ALONE = "cluster"
"""What a cluster is called that no source names."""


@dataclass(frozen=True, slots=True)
class Source:
    """What was read, and the cluster that it was given for; empty for all."""

    facts: Facts
    cluster: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """Alike hosts of a home (a root, or what a source was given for), leaf by leaf, and what is said of them.

    Without hosts: one node."""

    name: str
    home: str
    hosts: tuple[Host, ...]
    parts: tuple[Parts, ...]
    measured: tuple[Measured, ...] = ()

    @property
    def nodes(self) -> int:
        """Nodes of the cluster."""
        return max(len(self.hosts), 1)


def formed(sources: Sequence[Source]) -> tuple[tuple[Group, ...], tuple[str, ...], tuple[str, ...]]:
    """(groups, hosts that were left out, what was taken for granted). Raises HolmesError for contradictions and for clusters
    that do not exist."""
    hosts, strangers = _hosts(sources)
    notes = []
    given = [source.cluster for source in sources if source.cluster]
    homes: dict[str, list[Host]] = defaultdict(list)
    for host in hosts.values():
        homes[next((place for place in host.places if place in given), host.places[-1] if host.places else "")].append(host)
    if not hosts:
        homes = defaultdict(list, {name: [] for name in given or [""]})
        notes.append("no source tells hosts: one node in each cluster")
    named = _named([group for home, own in homes.items() for group in _alike(home, own, sources)])
    for name in given:
        if not any(name in (group.home, group.name) for group in named):
            known = sorted({place for host in hosts.values() for place in host.places} | {group.name for group in named})
            raise HolmesError(f"{name}=...: no host stands under {name!r}; known: {', '.join(known[:12])}")
    found = tuple(_completed(group, sources, set(hosts)) for group in named)
    left = [one for source in sources for one in source.facts.measured if all(one not in group.measured for group in found)]
    notes += [f"{one.source}: measured between hosts of several clusters; left out" for one in left]
    return found, tuple(strangers), tuple(notes)


def _hosts(sources: Sequence[Source]) -> tuple[dict[str, Host], list[str]]:
    """Hosts by name, of the sources that know best which there are. The first source with leaves tells the leaves."""
    best = max((source.facts.census for source in sources if source.facts.hosts), default=0)
    found: dict[str, Host] = {}
    notes: list[str] = []
    for source in sorted(sources, key=lambda source: -source.facts.census):
        facts = source.facts
        left = [host.name for host in facts.hosts if facts.census < best and host.name not in found]
        if left and (facts.census > RUN or len(left) < len(facts.hosts)):
            notes.append(f"{facts.source}: {len(left)} hosts that other sources do not know are left out ({_some(left)})")
        own = {host.name: _under(source.cluster, host) for host in facts.hosts if host.name not in left}
        _agree(found, own)
        found |= {name: host for name, host in own.items() if name not in found or not found[name].places}
    return found, notes


def _under(cluster: str, host: Host) -> Host:
    """The host of a source that was given for a cluster: it stands under it, whatever its switches are called."""
    return host if not cluster or cluster in host.places else replace(host, above=(*host.above, cluster))


def _agree(before: dict[str, Host], own: dict[str, Host]) -> None:
    """Raise HolmesError where two sources put the same hosts under leaves differently; what they call these is their own."""
    for one, other in ((before, own), (own, before)):
        seen: dict[str, str] = {}
        for name in one.keys() & other.keys():
            if not one[name].leaf or not other[name].leaf:
                continue
            first = seen.setdefault(one[name].leaf, name)
            if other[first].leaf != other[name].leaf:
                raise HolmesError(
                    f"{other[name].where}: hosts {first} and {name} are under different leaves, {other[first].leaf} and "
                    f"{other[name].leaf}; {one[name].where}: both under {one[name].leaf}"
                )


def _alike(home: str, hosts: list[Host], sources: Sequence[Source]) -> list[Group]:
    """The hosts of a home by what is said of each of them by name."""
    names = {host.name for host in hosts}
    own: dict[str, list[Parts]] = defaultdict(list)
    for source in sources:
        for parts in source.facts.parts:
            for name in parts.hosts:
                if name in names:
                    own[name].append(parts)
    kinds: dict[object, list[Host]] = defaultdict(list)
    for host in hosts:
        kinds[tuple(_plain(parts) for parts in own[host.name])].append(host)
    if len(kinds) == 2 and () in kinds:  # nothing is said of some: that makes them no other kind
        kinds = defaultdict(list, {(): hosts})
    found = []
    for alike in kinds.values() if hosts else [[]]:
        said = tuple(dict.fromkeys(parts for host in alike for parts in own[host.name]))
        found.append(Group(home, home, _by_leaf(alike), said))
    return found


def _completed(group: Group, sources: Sequence[Source], known: set[str]) -> Group:
    """With what is said of all nodes, and what was measured among these hosts.

    A run whose hosts are all unknown (pods, say) tells of all nodes."""
    heard = [source for source in sources if source.cluster in ("", group.home, group.name)]
    said = [(source.facts.census, parts) for source in heard for parts in source.facts.parts]
    common = [parts for census, parts in said if not parts.hosts or (census == RUN and not known & set(parts.hosts))]
    names = {host.name for host in group.hosts}
    timed = [one for source in heard for one in source.facts.measured if set(one.placed) & known <= names]
    return replace(group, parts=(*group.parts, *common), measured=tuple(timed))


def _plain(parts: Parts) -> Parts:
    """Parts without where they were read, of which hosts, and what their NICs are called."""
    return Parts(
        (),
        replace(parts.devices, where="") if parts.devices else None,
        replace(parts.joints, where="") if parts.joints else None,
        tuple(replace(nics, where="", names=()) for nics in parts.nics),
    )


def _by_leaf(hosts: Iterable[Host]) -> tuple[Host, ...]:
    found: dict[str, list[Host]] = defaultdict(list)
    for host in hosts:
        found[host.leaf].append(host)
    return tuple(host for leaf in found.values() for host in leaf)


def _named(groups: list[Group]) -> list[Group]:
    """Every group under a name of its own, fit for a topology: with its devices where these divide a cluster."""
    found: dict[str, Group] = {}
    for group in groups:
        name = group.name
        if len({_kind(other) for other in groups if other.name == name}) > 1:
            name = "-".join(filter(None, (name, _kind(group))))
        name = re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-._") or ALONE
        number = 2
        while name in found:
            name, number = f"{name.removesuffix(f'-{number - 1}') if number > 2 else name}-{number}", number + 1
        found[name] = replace(group, name=name)
    return list(found.values())


def _kind(group: Group) -> str:
    return next((kind for parts in group.parts if parts.devices and (kind := parts.devices.type or parts.devices.label)), "")


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (" ..." if len(names) > 3 else "")
