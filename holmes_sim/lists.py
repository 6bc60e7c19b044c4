"""What can be chosen: entries of the catalogue, and choices such as strategies, schedules and launch targets."""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable
from typing import Any

from holmes_sim import capabilities, commands, exporters
from holmes_sim.sweeping import study
from planner import strategies
from sim import aggregation, collectives, compression, sync
from sim.errors import OptionError
from sim.formats import catalog
from sim.plan import schedules
from sim.registry import Registry

FORMAT = "holmes-sim/list/1"
FACTS: dict[str, Callable[[str], Any]] = {
    "devices": catalog.device_facts,
    "links": catalog.link_facts,
    "nics": catalog.nic_facts,
    "models": catalog.model_facts,
    "stacks": catalog.stack_facts,
}
"""Kinds of the catalogue whose entries have facts -> the function that reads an entry."""
REGISTRIES: dict[str, Registry[Any]] = {
    "strategies": strategies.REGISTRY,
    "schedules": schedules.REGISTRY,
    "collectives": collectives.REGISTRY,
    "sync": sync.REGISTRY,
    "compressions": compression.REGISTRY,
    "aggregations": aggregation.REGISTRY,
    "targets": exporters.REGISTRY,
}
"""Kinds that are modules of a folder."""
SHIPPED: dict[str, Callable[[], tuple[str, ...]]] = {"topologies": commands.shipped_topologies, "studies": study.shipped}
"""Kinds that are shipped files."""
KINDS = ("devices", "links", "nics", "models", "profiles", "stacks", "topologies", "studies", *REGISTRIES)


def list(kind: str) -> tuple[str, ...]:
    """Names of all entries of a kind (one of `KINDS`), sorted; launch targets begin with what most people launch. Raises
    OptionError for another kind."""
    if kind not in KINDS:
        raise OptionError(f"{kind!r} cannot be listed; known: {', '.join(KINDS)}")
    if kind in REGISTRIES:
        return exporters.every() if kind == "targets" else REGISTRIES[kind].names
    return SHIPPED[kind]() if kind in SHIPPED else catalog.names(kind)


def what(kind: str, name: str) -> str:
    """What an entry of one of `REGISTRIES` is: the first sentence of its module's docstring, without the name in front."""
    paragraph = " ".join((REGISTRIES[kind].get(name).__doc__ or "").strip().split("\n\n")[0].split())
    sentence = re.split(r"(?<=\.)\s", paragraph)[0]
    first, _, rest = sentence.partition(": ")
    return rest if rest and " " not in first else sentence


def target_facts(name: str) -> dict[str, Any]:
    """A launch target as plain data: kind, readers, vendors, and what it can express (`capabilities.of`)."""
    target = exporters.get(name)
    takes = capabilities.of(name) if name in exporters.names() else {}
    return {
        "kind": target.KIND,
        "read_by": target.READERS,
        "vendors": target.VENDORS,
        "excluded_vendors": target.EXCLUDED_VENDORS,
        "takes": takes,
    }


def facts(kind: str) -> dict[str, Any]:
    """The entries of a kind as plain data (format holmes-sim/list/1), with their facts in SI units or what they are."""
    rows: builtins.list[dict[str, Any]] = []
    for name in list(kind):
        row: dict[str, Any] = {"name": name}
        if kind in FACTS:
            row["facts"] = FACTS[kind](name).model_dump(mode="json")
        elif kind in REGISTRIES:
            row["what"] = what(kind, name)
        if kind == "targets":
            row["target"] = target_facts(name)
        rows.append(row)
    return {"format": FORMAT, "kind": kind, "names": [row["name"] for row in rows], "rows": rows}
