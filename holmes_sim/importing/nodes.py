"""What is said of a node, put together: devices, what joins them, NICs. What contradicts is one error naming both sources."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from holmes_sim.importing import hardware
from holmes_sim.importing.facts import Devices, Joints, Nics
from holmes_sim.importing.groups import Group
from sim.errors import HolmesError
from sim.units import rate_text

Value = TypeVar("Value", str, int, float)
NAMES_DEVICES = (
    "nvidia-smi -L (before nvidia-smi topo -m, in one file), NCCL's topology XML, nccl-tests output or Kubernetes nodes"
)
NAMES_NICS = "NCCL's topology XML (NCCL_TOPO_DUMP_FILE) or ibnetdiscover"


@dataclass(slots=True)
class Told:
    """What comes out of an import besides the topology; `lacking` is what no topology can do without."""

    read: list[str] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    lacking: list[str] = field(default_factory=list)


def _one(what: str, said: Iterable[tuple[Value, str, str]]) -> tuple[Value, str] | None:
    """The value that all sources agree on and where the first says it, of (value, as text, where). Raises HolmesError."""
    first: tuple[Value, str, str] | None = None
    for value, text, where in said:
        if first is None:
            first = value, text, where
        elif first[0] != value:
            raise HolmesError(f"{where}: {what} {text}, but {first[2]} has {first[1]}")
    return (first[0], first[2]) if first else None


def devices(group: Group, told: Told) -> tuple[str, int]:
    """(device of the catalogue, devices of a node); empty and 0 where they are lacking."""
    said = [parts.devices for parts in group.parts if parts.devices]
    kind = _one("devices are", ((one.type, one.type, one.where) for one in said if one.type))
    strange = next((one for one in said if one.label and not one.type), None)
    count = _one(
        "devices of a node are", ((one.count, str(one.count), one.where) for one in said if one.count and not one.used)
    )
    if count is None:
        count = _used(group, said, told)
    if kind is None and strange is not None:
        told.lacking.append(
            f"{strange.where}: {strange.label!r} of cluster {group.name} is no device that the catalogue has, or no full name "
            f"of one; full names are told by {NAMES_DEVICES}"
        )
    elif kind is None:
        told.lacking.append(f"no source tells the devices of cluster {group.name}; {NAMES_DEVICES} would")
    elif count is None:
        told.lacking.append(f"no source tells how many devices a node of cluster {group.name} has; nvidia-smi topo -m would")
    if kind is None or count is None:
        return "", 0
    told.read.append(f"cluster {group.name}: {count[0]} x {kind[0]} in a node ({kind[1]}{_also(count[1], kind[1])})")
    return kind[0], count[0]


def _used(group: Group, said: Sequence[Devices], told: Told) -> tuple[int, str] | None:
    most = max((one for one in said if one.count), key=lambda one: one.count, default=None)
    if most is None:
        return None
    told.assumed.append(f"cluster {group.name}: a node has the {most.count} devices that the run of {most.where} used, no more")
    return most.count, most.where


def _also(where: str, other: str) -> str:
    return "" if where == other else f", {where}"


def joined(group: Group, device: str, count: int, told: Told) -> str:
    """The link of the catalogue between the devices of a node; empty where it, or what the devices are, is lacking."""
    said = [parts.joints for parts in group.parts if parts.joints]
    same = _one("devices of a node are joined by", ((_shown(one), _shown(one), one.where) for one in said))
    if not device:
        return ""
    if count == 1:
        return hardware.usual(device) or "pcie4"
    if same is None:
        found = hardware.usual(device)
        told.assumed.append(f"cluster {group.name}: {found} joins the devices, as on the usual board of {device}")
        return found
    best = max(said, key=lambda one: one.generation)
    found = hardware.link(device, best)
    if not found and not best.whole and (slot := hardware.slot(device)):
        told.assumed.append(f"cluster {group.name}: {slot} joins the devices; {same[0]} ({same[1]}) joins some pairs only")
        return slot
    if not found:
        told.lacking.append(
            f"{same[1]}: the catalogue has no link that joins {device} by {same[0]}; nccl-tests inside a node (cluster "
            f"{group.name}) tells how fast it is"
        )
    else:
        told.read.append(f"cluster {group.name}: {found} joins the devices ({same[1]}: {same[0]})")
    return found


def _shown(joints: Joints) -> str:
    if joints.kind == "pcie":
        return "PCIe"
    name = f"NV{joints.links}" if joints.kind == "nvlink" else "xGMI"
    return f"{name} {'between all pairs' if joints.whole else 'between some pairs'}"


def nics(group: Group, told: Told) -> list[Nics]:
    """NICs of a node by type, complete; those that no run over several nodes could use without are lacking."""
    said = [one for parts in group.parts for one in parts.nics]
    found: list[Nics] = []
    for kind in dict.fromkeys(one.type for one in said if one.type and one.count):
        own = [one for one in said if one.type == kind]
        count = _one(f"{kind} NICs of a node are", ((one.count, str(one.count), one.where) for one in own if one.count))
        rate = _one(f"{kind} NICs have", ((one.bandwidth, rate_text(one.bandwidth), one.where) for one in own if one.bandwidth))
        assert count is not None
        if rate is None:
            line = f"{count[1]}: no source tells the bandwidth of the {count[0]} {kind} NICs of cluster {group.name}"
            (told.lacking if group.nodes > 1 else told.missing).append(f"{line}; {NAMES_NICS} would")
            continue
        gid = next((one.gid_index for one in own if one.gid_index is not None), None)
        found.append(Nics(count[1], kind, rate[0], count[0], _names(own, said, count[0]), gid))
        told.read.append(
            f"cluster {group.name}: {count[0]} x {kind} at {rate_text(rate[0])} ({count[1]}{_also(rate[1], count[1])})"
        )
    untold = next((one for one in said if not one.type), None)
    if not found and not told.lacking and group.nodes > 1:
        hint = f"; {untold.where} names {', '.join(untold.names)}, but not their type and bandwidth" if untold else ""
        told.lacking.append(
            f"no source tells the NICs of cluster {group.name}, which has {group.nodes} nodes; {NAMES_NICS} would{hint}"
        )
    if untold is not None and not any(set(untold.names) >= set(one.names) and one.names for one in found):
        told.missing.append(f"of which type {', '.join(untold.names)} are ({untold.where}); {NAMES_NICS} would tell")
    return found


def _names(own: Sequence[Nics], said: Sequence[Nics], count: int) -> tuple[str, ...]:
    """What all nodes call the NICs of a type: by sources that tell the type, else where just as many RDMA devices are named."""
    rdma = own[0].type != "ethernet"
    for candidates in ([one.names for one in own if one.names], [one.names for one in said if rdma and not one.type]):
        if candidates:
            return candidates[0] if len(set(candidates)) == 1 and len(candidates[0]) == count else ()
    return ()
