"""A node from the facts of all sources: devices, interconnect, host memory and NICs.

A contradiction is one error that names both sources."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from holmes_sim.importing import hardware
from holmes_sim.importing.facts import Devices, Interconnect, Nics
from holmes_sim.importing.groups import Group
from sim.errors import HolmesError
from sim.formats import catalog
from sim.formats.documents import KeyPath
from sim.units import GIBI, rate_text

UNLIKE = 1.05
"""Ratio of the memories of two hosts above which a note says that the least counts. Guess: kernels reserve a percent or two."""
Value = TypeVar("Value", str, int, float)
NAMES_DEVICES = (
    "nvidia-smi -L (before nvidia-smi topo -m, in one file), nvidia-smi --query-gpu, rocm-smi, lspci -nn, NCCL's topology XML, "
    "nccl-tests output or Kubernetes nodes"
)
"""Sources that name the devices, for messages."""
NAMES_NICS = "ibstat, NCCL's topology XML (NCCL_TOPO_DUMP_FILE) or ibnetdiscover"
"""Sources that give type and bandwidth of NICs, for messages."""


@dataclass(slots=True)
class ImportNotes:
    """Notes of an import: facts read, assumptions, missing facts, and `blocking`: missing facts that every topology needs.

    `origins`: path in the topology -> where its value comes from, for comments.
    """

    read: list[str] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    blocking: list[str] = field(default_factory=list)
    origins: dict[KeyPath, str] = field(default_factory=dict)

    def note_origin(self, group: Group, key: str, text: str) -> None:
        """Note where a key of the node of a cluster comes from."""
        self.origins["clusters", group.name, "node", key] = text


def _agreed(what: str, values: Iterable[tuple[Value, str, str]]) -> tuple[Value, str] | None:
    """(value, where the first source gives it), of (value, text, where); None without values. Raises HolmesError if they
    differ.
    """
    first: tuple[Value, str, str] | None = None
    for value, text, where in values:
        if first is None:
            first = value, text, where
        elif first[0] != value:
            raise HolmesError(f"{where}: {what} {text}, but {first[2]} has {first[1]}")
    return (first[0], first[2]) if first else None


def devices(group: Group, notes: ImportNotes) -> tuple[str, int]:
    """(device of the catalogue, number in a node); empty and 0, with a blocking note, if unknown."""
    given = [parts.devices for parts in group.parts if parts.devices]
    kind = _agreed("devices are", ((one.type, one.type, one.where) for one in given if one.type))
    unknown = next((one for one in given if one.label and not one.type), None)
    count = _agreed(
        "devices of a node are", ((one.count, str(one.count), one.where) for one in given if one.count and not one.used)
    )
    if count is None:
        count = _used_by_run(group, given, notes)
    if kind is None and unknown is not None:
        notes.blocking.append(
            f"{unknown.where}: {unknown.label!r} of cluster {group.name} is not the full name of a device in the catalogue"
            f"{_candidates(unknown.label)}; sources with full names: {NAMES_DEVICES}"
        )
    elif kind is None:
        notes.blocking.append(f"no source names the devices of cluster {group.name}; sources that do: {NAMES_DEVICES}")
    elif count is None:
        notes.blocking.append(
            f"no source gives the number of devices in a node of cluster {group.name}; nvidia-smi topo -m does"
        )
    if kind is None or count is None:
        return "", 0
    places = f"{kind[1]}{_second_source(count[1], kind[1])}"
    notes.read.append(f"cluster {group.name}: {count[0]} x {kind[0]} in a node ({places})")
    notes.note_origin(group, "devices", f"read from {places}")
    return kind[0], count[0]


def _candidates(label: str) -> str:
    """Devices of the catalogue whose names contain a label, for messages; empty where there are none."""
    found = [name for name in catalog.names("devices") if label.lower() in name]
    return f" ({' or '.join(found)}?)" if found else ""


def _used_by_run(group: Group, given: Sequence[Devices], notes: ImportNotes) -> tuple[int, str] | None:
    """The largest number of devices of a node that a run used, with a note that it is an assumption; None without runs."""
    most = max((one for one in given if one.count), key=lambda one: one.count, default=None)
    if most is None:
        return None
    notes.assumed.append(
        f"cluster {group.name}: a node has no more than the {most.count} devices that the run of {most.where} used"
    )
    return most.count, most.where


def _second_source(where: str, other: str) -> str:
    """`, WHERE` if it differs from the other source, else nothing."""
    return "" if where == other else f", {where}"


def interconnect(group: Group, device: str, count: int, notes: ImportNotes) -> str:
    """Link of the catalogue between the devices of a node; empty, with a blocking note, if it or the device is unknown."""
    given = [parts.interconnect for parts in group.parts if parts.interconnect]
    same = _agreed("devices of a node are joined by", ((_description(one), _description(one), one.where) for one in given))
    if not device:
        return ""
    if count == 1:
        notes.note_origin(group, "intra_node", "no effect with one device")
        return hardware.usual_link(device) or "pcie4"
    if same is None:
        found = hardware.usual_link(device)
        notes.assumed.append(f"cluster {group.name}: {found} joins the devices, as on the usual board of {device}")
        notes.note_origin(group, "intra_node", f"guess: the usual board of {device}")
        return found
    best = max(given, key=lambda one: one.generation)
    found = hardware.link(device, best)
    if not found and not best.all_pairs and (pcie := hardware.pcie_link(device)):
        notes.assumed.append(f"cluster {group.name}: {pcie} joins the devices; {same[0]} ({same[1]}) joins only some pairs")
        notes.note_origin(group, "intra_node", f"guess: {same[0]} joins only some pairs ({same[1]})")
        return pcie
    if not found:
        notes.blocking.append(
            f"{same[1]}: the catalogue has no link for {device} joined by {same[0]}; add a run of nccl-tests inside a node "
            f"of cluster {group.name}"
        )
    else:
        notes.read.append(f"cluster {group.name}: {found} joins the devices ({same[1]}: {same[0]})")
        notes.note_origin(group, "intra_node", f"read from {same[1]}: {same[0]}")
    return found


def _description(interconnect: Interconnect) -> str:
    """The interconnect in words, to compare sources and for messages."""
    if interconnect.kind == "pcie":
        return "PCIe"
    name = f"NV{interconnect.links}" if interconnect.kind == "nvlink" else "xGMI"
    return f"{name} {'between all pairs' if interconnect.all_pairs else 'between some pairs'}"


def host_memory(group: Group, notes: ImportNotes) -> str:
    """The least memory of the hosts of a cluster, in whole GiB; empty if unknown. The kernels of equal hosts reserve unequal
    parts of it."""
    given = sorted((one.host_memory.nbytes, one.host_memory.where) for one in group.parts if one.host_memory is not None)
    if not given:
        return ""
    (least, where), (most, other) = given[0], given[-1]
    text = f"{max(int(least / GIBI), 1)} GiB"
    if most > UNLIKE * least:
        notes.assumed.append(
            f"cluster {group.name}: every host has {text} of memory ({where}), the least; {other} has {int(most / GIBI)} GiB"
        )
    notes.read.append(f"cluster {group.name}: host memory {text} ({where})")
    notes.note_origin(group, "host_memory", f"read from {where}")
    return text


def nics(group: Group, notes: ImportNotes, guess: Nics | None = None) -> list[Nics]:
    """NICs of a node by type, with number and bandwidth.

    Types without bandwidth are left out. If a cluster of several nodes has no NICs then, it gets those of `guess`, as many as
    a source names without their type; without a guess, the note on them blocks the import.
    """
    given = [one for parts in group.parts for one in parts.nics]
    found: list[Nics] = []
    for kind in dict.fromkeys(one.type for one in given if one.type and one.count):
        own = [one for one in given if one.type == kind]
        count = _agreed(f"{kind} NICs of a node are", ((one.count, str(one.count), one.where) for one in own if one.count))
        rate = _agreed(
            f"{kind} NICs have", ((one.bandwidth, rate_text(one.bandwidth), one.where) for one in own if one.bandwidth)
        )
        assert count is not None
        if rate is None:
            line = f"{count[1]}: no source gives the bandwidth of the {count[0]} {kind} NICs of cluster {group.name}"
            (notes.blocking if group.nodes > 1 and guess is None else notes.missing).append(
                f"{line}; sources that do: {NAMES_NICS}"
            )
            continue
        gid = next((one.gid_index for one in own if one.gid_index is not None), None)
        found.append(Nics(count[1], kind, rate[0], count[0], _names(own, given, count[0]), gid))
        places = f"{count[1]}{_second_source(rate[1], count[1])}"
        notes.read.append(f"cluster {group.name}: {count[0]} x {kind} at {rate_text(rate[0])} ({places})")
        notes.origins["clusters", group.name, "node", "nics", len(found) - 1] = f"read from {places}"
    untyped = next((one for one in given if not one.type), None)
    if not found and guess is not None and group.nodes > 1:
        origin = "guess: no source gives the NICs"
        if untyped is not None and guess.type != "ethernet":
            guess = replace(guess, count=untyped.count, names=untyped.names)
            origin = f"number and names read from {untyped.where}; guess: type and rate"
        found.append(guess)
        told = f"{guess.count} x {guess.type} at {rate_text(guess.bandwidth)}"
        notes.assumed.append(f"cluster {group.name}: {told}, a guess; sources that give the NICs: {NAMES_NICS}")
        notes.origins["clusters", group.name, "node", "nics", 0] = origin
    elif not found and not notes.blocking and group.nodes > 1:
        names = f"; {untyped.where} names {', '.join(untyped.names)} without type and bandwidth" if untyped else ""
        notes.blocking.append(
            f"no source gives the NICs of cluster {group.name}, which has {group.nodes} nodes; "
            f"sources that do: {NAMES_NICS}{names}"
        )
    if untyped is not None and not any(set(untyped.names) >= set(one.names) and one.names for one in found):
        notes.missing.append(f"the type of {', '.join(untyped.names)} ({untyped.where}); sources that give it: {NAMES_NICS}")
    return found


def _names(own: Sequence[Nics], given: Sequence[Nics], count: int) -> tuple[str, ...]:
    """Names of the NICs of a type if all nodes have the same names.

    From sources that give the type; for RDMA types otherwise from sources without types that name just as many devices.
    """
    rdma = own[0].type != "ethernet"
    for candidates in ([one.names for one in own if one.names], [one.names for one in given if rdma and not one.type]):
        if candidates:
            return candidates[0] if len(set(candidates)) == 1 and len(candidates[0]) == count else ()
    return ()
