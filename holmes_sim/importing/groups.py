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

from holmes_sim.importing.facts import Facts, Host, Parts
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
    """Alike hosts, leaf by leaf, and everything that is said of them. Without hosts: one node."""

    name: str
    hosts: tuple[Host, ...]
    parts: tuple[Parts, ...]
    measured: tuple[Measured, ...]

    @property
    def nodes(self) -> int:
        """Nodes of the cluster."""
        return max(len(self.hosts), 1)


def formed(sources: Sequence[Source]) -> tuple[tuple[Group, ...], tuple[str, ...]]:
    """(groups, what was taken for granted). Raises HolmesError for contradictions and for clusters that do not exist."""
    hosts, notes = _hosts(sources)
    given = [source.cluster for source in sources if source.cluster]
    homes: dict[str, list[Host]] = defaultdict(list)
    for host in hosts.values():
        homes[next((place for place in host.places if place in given), host.places[-1] if host.places else "")].append(host)
    if not hosts:
        homes = defaultdict(list, {name: [] for name in given or [""]})
        notes.append("no source tells hosts: one node in each cluster")
    for name in given:
        if name not in homes:
            known = sorted({place for host in hosts.values() for place in host.places}) or ["none"]
            raise HolmesError(f"{name}=...: no host stands under {name!r}; known: {', '.join(known[:12])}")
    found: list[Group] = []
    for home, own in homes.items():
        found += _alike(home, own, sources, set(hosts))
    used = [one for group in found for one in group.measured]
    left = [one.source for source in sources for one in source.facts.measured if one not in used]
    notes += [f"{name}: measured between hosts of several clusters; left out" for name in left]
    return tuple(_named(found)), tuple(notes)


def _hosts(sources: Sequence[Source]) -> tuple[dict[str, Host], list[str]]:
    """Hosts by name: those that jobs may run on where a source lists them, else all. The first source with leaves counts."""
    lists = any(source.facts.lists for source in sources)
    found: dict[str, Host] = {}
    notes: list[str] = []
    for facts in sorted((source.facts for source in sources), key=lambda facts: not facts.lists):
        left = [host.name for host in facts.hosts if lists and not facts.lists and host.name not in found]
        if left and len(left) < len(facts.hosts):
            notes.append(f"{facts.source}: {len(left)} hosts that no scheduler lists are left out ({_some(left)})")
        own = {host.name: host for host in facts.hosts if host.name not in left}
        _agree(found, own)
        found |= {name: host for name, host in own.items() if name not in found or not found[name].places}
    return found, notes


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


def _alike(home: str, hosts: list[Host], sources: Sequence[Source], known: set[str]) -> list[Group]:
    """The hosts of a cluster by what is said of each of them."""
    own: dict[str, list[Parts]] = defaultdict(list)
    common: list[Parts] = []
    measured: list[tuple[set[str], Measured]] = []
    for source in sources:
        if source.cluster not in ("", home):
            continue
        for parts in source.facts.parts:
            named = [name for name in parts.hosts if name in known]
            for name in named:
                own[name].append(parts)
            common += [] if named else [parts]
        measured += [(set(one.placed) & known, one) for one in source.facts.measured]
    kinds: dict[object, list[Host]] = defaultdict(list)
    for host in hosts:
        kinds[tuple(_plain(parts) for parts in own[host.name])].append(host)
    if not hosts:
        return [Group(home, (), tuple(common), tuple(one for _, one in measured))]
    if len(kinds) == 2 and () in kinds:  # nothing is said of some: that makes them no other kind
        kinds = defaultdict(list, {(): hosts})
    found = []
    for alike in kinds.values():
        names = {host.name for host in alike}
        said = tuple(dict.fromkeys(parts for host in alike for parts in own[host.name]))
        timed = tuple(one for placed, one in measured if placed <= names)
        found.append(Group(home, _by_leaf(alike), (*said, *common), timed))
    return found


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
    """Every group under a name of its own, fit for a topology: with its devices where a cluster was divided."""
    found: dict[str, Group] = {}
    for group in groups:
        name = group.name
        if sum(other.name == name for other in groups) > 1:
            kinds = [parts.devices.type or parts.devices.label for parts in group.parts if parts.devices]
            name = "-".join(filter(None, (name, next(filter(None, kinds), ""))))
        name = re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-._") or ALONE
        number = 2
        while name in found:
            name, number = f"{name.removesuffix(f'-{number - 1}') if number > 2 else name}-{number}", number + 1
        found[name] = replace(group, name=name)
    return list(found.values())


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (" ..." if len(names) > 3 else "")
