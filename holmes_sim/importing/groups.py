"""Hosts and parts of all sources -> groups of equal hosts, which become clusters.

A host belongs to the cluster that a source was given for (`CLUSTER=FILE`) if that is one of the switches above it, else to the
topmost switch above it: switches that are not joined are separate fabrics. Hosts of one cluster with different parts are split
into several clusters, since all nodes of a cluster are equal.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from holmes_sim.importing.facts import RUN, Facts, Host, Parts
from holmes_sim.profiling.links import LinkMeasurement
from sim.errors import HolmesError

DEFAULT_NAME = "cluster"
"""Name of a cluster that no source names."""


@dataclass(frozen=True, slots=True)
class Source:
    """The facts of a source, and the cluster that it was given for (empty: all clusters)."""

    facts: Facts
    cluster: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """Equal hosts under one root (the topmost switch, or the cluster a source was given for), ordered by leaf, with their
    facts.

    A group without hosts is one node.
    """

    name: str
    root: str
    hosts: tuple[Host, ...]
    parts: tuple[Parts, ...]
    measured: tuple[LinkMeasurement, ...] = ()

    @property
    def nodes(self) -> int:
        """Number of nodes of the cluster."""
        return max(len(self.hosts), 1)


def group_hosts(sources: Sequence[Source]) -> tuple[tuple[Group, ...], tuple[str, ...], tuple[str, ...]]:
    """(groups, hosts that were left out, assumptions). Raises HolmesError for contradictions and for clusters that do not
    exist.
    """
    hosts, left_out = _hosts(sources)
    notes = []
    given = [source.cluster for source in sources if source.cluster]
    roots: dict[str, list[Host]] = defaultdict(list)
    for host in hosts.values():
        roots[next((switch for switch in host.switches if switch in given), host.switches[-1] if host.switches else "")].append(
            host
        )
    if not hosts:
        roots = defaultdict(list, {name: [] for name in given or [""]})
        notes.append("no source lists hosts: each cluster gets one node")
    named = _with_unique_names([group for root, own in roots.items() for group in _split_by_parts(root, own, sources)])
    for name in given:
        if not any(name in (group.root, group.name) for group in named):
            known = sorted({switch for host in hosts.values() for switch in host.switches} | {group.name for group in named})
            raise HolmesError(f"{name}=...: no host belongs to {name!r}; known: {', '.join(known[:12])}")
    found = tuple(_with_common_parts(group, sources, set(hosts)) for group in named)
    left = [one for source in sources for one in source.facts.measured if all(one not in group.measured for group in found)]
    notes += [f"{one.source}: left out, as it was measured between hosts of several clusters" for one in left]
    return found, tuple(left_out), tuple(notes)


def _hosts(sources: Sequence[Source]) -> tuple[dict[str, Host], list[str]]:
    """(hosts by name, notes): hosts of the sources with the largest coverage. The first source that gives leaves is used for
    them.
    """
    best = max((source.facts.coverage for source in sources if source.facts.hosts), default=0)
    found: dict[str, Host] = {}
    notes: list[str] = []
    for source in sorted(sources, key=lambda source: -source.facts.coverage):
        facts = source.facts
        left = [host.name for host in facts.hosts if facts.coverage < best and host.name not in found]
        if left and (facts.coverage > RUN or len(left) < len(facts.hosts)):
            notes.append(
                f"{facts.source}: {len(left)} hosts that other sources do not know are left out ({_first_three(left)})"
            )
        own = {host.name: _in_cluster(source.cluster, host) for host in facts.hosts if host.name not in left}
        _check_leaves(found, own)
        found |= {name: host for name, host in own.items() if name not in found or not found[name].switches}
    return found, notes


def _in_cluster(cluster: str, host: Host) -> Host:
    """The host with the cluster that its source was given for as the topmost switch, unless it is below it already."""
    return host if not cluster or cluster in host.switches else replace(host, above=(*host.above, cluster))


def _check_leaves(before: dict[str, Host], own: dict[str, Host]) -> None:
    """Raise HolmesError if two sources assign the same hosts to leaves differently; names of leaves may differ."""
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


def _split_by_parts(root: str, hosts: list[Host], sources: Sequence[Source]) -> list[Group]:
    """Groups of the hosts under one root that have the same parts, by the facts that name them."""
    names = {host.name for host in hosts}
    own: dict[str, list[Parts]] = defaultdict(list)
    for source in sources:
        for parts in source.facts.parts:
            for name in parts.hosts:
                if name in names:
                    own[name].append(parts)
    kinds: dict[object, list[Host]] = defaultdict(list)
    for host in hosts:
        kinds[tuple(one for parts in own[host.name] if (one := _comparable(parts)) != Parts())].append(host)
    if len(kinds) == 2 and () in kinds:  # hosts without facts are equal to the others
        kinds = defaultdict(list, {(): hosts})
    found = []
    for equal in kinds.values() if hosts else [[]]:
        known = tuple(dict.fromkeys(parts for host in equal for parts in own[host.name]))
        found.append(Group(root, root, _by_leaf(equal), known))
    return found


def _with_common_parts(group: Group, sources: Sequence[Source], known: set[str]) -> Group:
    """The group with the parts that hold for all nodes, and the measurements between its hosts.

    A run whose hosts are all unknown (for example pods) counts for all nodes.
    """
    relevant = [source for source in sources if source.cluster in ("", group.root, group.name)]
    given = [(source.facts.coverage, parts) for source in relevant for parts in source.facts.parts]
    common = [parts for coverage, parts in given if not parts.hosts or (coverage == RUN and not known & set(parts.hosts))]
    names = {host.name for host in group.hosts}
    timed = [one for source in relevant for one in source.facts.measured if set(one.placed) & known <= names]
    return replace(group, parts=(*group.parts, *common), measured=tuple(timed))


def _comparable(parts: Parts) -> Parts:
    """Parts without source, hosts, NIC names and host memory, which differs a little, to compare the parts of two hosts."""
    return Parts(
        (),
        replace(parts.devices, where="") if parts.devices else None,
        replace(parts.interconnect, where="") if parts.interconnect else None,
        tuple(replace(nics, where="", names=()) for nics in parts.nics),
    )


def _by_leaf(hosts: Iterable[Host]) -> tuple[Host, ...]:
    """The hosts ordered by leaf, leaves in order of appearance."""
    found: dict[str, list[Host]] = defaultdict(list)
    for host in hosts:
        found[host.leaf].append(host)
    return tuple(host for leaf in found.values() for host in leaf)


def _with_unique_names(groups: list[Group]) -> list[Group]:
    """The groups with unique names that a topology allows; groups of one root with different devices get the device in the
    name.
    """
    found: dict[str, Group] = {}
    for group in groups:
        name = group.name
        if len({_kind(other) for other in groups if other.name == name}) > 1:
            name = "-".join(filter(None, (name, _kind(group))))
        name = re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-._") or DEFAULT_NAME
        number = 2
        while name in found:
            name, number = f"{name.removesuffix(f'-{number - 1}') if number > 2 else name}-{number}", number + 1
        found[name] = replace(group, name=name)
    return list(found.values())


def _kind(group: Group) -> str:
    """Name of the devices of a group; empty if unknown."""
    return next((kind for parts in group.parts if parts.devices and (kind := parts.devices.type or parts.devices.label)), "")


def _first_three(names: Sequence[str]) -> str:
    """The first three names as text."""
    return ", ".join(names[:3]) + (" ..." if len(names) > 3 else "")
