"""Importer of `kubectl get nodes -o json`: nodes with GPUs, by the labels of NVIDIA's GPU feature discovery, zones and
topograph.

Labels: nvidia.com/gpu.product and .count (GPU operator, GPU feature discovery), topology.kubernetes.io/zone,
fabric.topograph.run/tier-N (0 is the leaf; older: network.topology.nvidia.com/leaf, spine, core). AMD's device plugin labels
nodes with amd.com/gpu.product-name and counts amd.com/gpu. Nodes without devices are left out.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from holmes_sim.importing import hardware
from holmes_sim.importing.facts import SCHEDULER, Devices, Facts, Host, Parts
from sim.errors import HolmesError
from sim.formats.documents import Document, parse_json

NAME = "Kubernetes nodes (kubectl get nodes -o json)"
_TIER = re.compile(r"fabric\.topograph\.run/tier-(\d+)")
_TIERS = ("network.topology.nvidia.com/leaf", "network.topology.nvidia.com/spine", "network.topology.nvidia.com/core")
_ZONE = "topology.kubernetes.io/zone"


def recognises(text: str) -> bool:
    """Whether the text is a JSON object with apiVersion that is a node or a list of nodes."""
    return (
        text.lstrip().startswith("{")
        and '"apiVersion"' in text
        and re.search(r'"kind"\s*:\s*"Node(?:List)?"', text) is not None
    )


def read(text: str, name: str) -> Facts:
    """Hosts with their devices, leaves and zones. Raises HolmesError."""
    document = parse_json(name, text)
    value: Any = document.value
    single = isinstance(value, dict) and value.get("kind") == "Node"
    items = [value] if single else value.get("items") if isinstance(value, dict) else None
    if not isinstance(items, list):
        raise HolmesError(f"{name}:1: expected items, a list of nodes")
    hosts: list[Host] = []
    parts: list[Parts] = []
    without = 0
    for index, item in enumerate(items):
        at = () if single else ("items", index)
        own, labels, counted = _node(document, at, item)
        where = f"{name}:{document.line((*at, 'metadata', 'name'))}"
        devices = _devices(labels, counted, where)
        if devices is None:
            without += 1
            continue
        hosts.append(Host(own, where, *_switches(labels)))
        parts.append(Parts((own,), devices=devices))
    twice = [host for host, times in Counter(host.name for host in hosts).items() if times > 1]
    if twice:
        raise HolmesError(f"{name}: node {twice[0]!r} is listed twice")
    if not hosts:
        raise HolmesError(f"{name}: none of {len(items)} nodes has devices (nvidia.com/gpu.count or amd.com/gpu)")
    notes = (f"{name}: {without} nodes without devices are left out",) if without else ()
    return Facts(name, tuple(hosts), coverage=SCHEDULER, parts=tuple(parts), notes=notes)


def _node(document: Document, at: tuple[str | int, ...], item: Any) -> tuple[str, dict[str, str], dict[str, Any]]:
    """(name, labels, capacity) of a node."""
    metadata = item.get("metadata") if isinstance(item, dict) else None
    own = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(metadata, dict) or not isinstance(own, str):
        raise HolmesError(document.fault((*at, "metadata"), "expected name: NAME"))
    labels, status = metadata.get("labels") or {}, item.get("status") or {}
    if not isinstance(labels, dict) or not isinstance(status, dict):
        raise HolmesError(document.fault(at, "metadata.labels and status must be mappings"))
    capacity = status.get("capacity") or {}
    return own, {str(key): str(text) for key, text in labels.items()}, capacity if isinstance(capacity, dict) else {}


def _devices(labels: dict[str, str], capacity: dict[str, Any], where: str) -> Devices | None:
    """Devices of a node; None if it has none. Raises HolmesError for GPUs that are partitioned (MIG) or shared."""
    label = labels.get("nvidia.com/gpu.product", labels.get("amd.com/gpu.product-name", ""))
    count = labels.get("nvidia.com/gpu.count") or str(capacity.get("nvidia.com/gpu", capacity.get("amd.com/gpu", "")))
    if not label and count in ("", "0"):
        return None
    if "-MIG-" in label or label.endswith("-SHARED"):
        raise HolmesError(f"{where}: {label} is part of a device (MIG or time sharing); plans need whole devices")
    if count and not count.isdecimal():
        raise HolmesError(f"{where}: {count!r} is not a number of devices")
    return Devices(where, hardware.device(label), label, int(count or 0))


def _switches(labels: dict[str, str]) -> tuple[str, tuple[str, ...]]:
    """(leaf, switches above it), from topograph's tiers if the node has them, else from its zone."""
    numbered = sorted((int(match[1]), text) for key, text in labels.items() if (match := _TIER.fullmatch(key)))
    tiers = [text for _, text in numbered] or [labels[key] for key in _TIERS if key in labels]
    if tiers:
        return tiers[0], tuple(tiers[1:])
    return "", (labels[_ZONE],) if _ZONE in labels else ()
