"""Reader of software stacks: one of the catalogue by name, or a file that `holmes-sim calibrate` wrote."""

from __future__ import annotations

from pathlib import Path

from sim.errors import TopologyError
from sim.formats import catalog
from sim.formats.documents import check, parse, read_text
from sim.formats.stack_facts import StackConstants, StackFacts, written_facts
from sim.formats.suggestions import suggestion


def load(name: str, folder: Path = Path()) -> StackConstants:
    """A stack of the catalogue by name, or a file, looked up in `folder` first. Raises TopologyError."""
    path = folder / name if (folder / name).is_file() else Path(name)
    if path.is_file():
        document = parse(str(path), read_text(path))
        kind = document.value.get("format") if isinstance(document.value, dict) else None
        if not str(kind).startswith("holmes-sim/stack/"):
            right = "its format is holmes-sim/stack/1, and holmes-sim calibrate writes one"
            raise TopologyError(document.fault(("format",), f"this is no software stack; {right}"))
        return check(document, StackFacts)
    if name in catalog.names("stacks"):
        return catalog.stack_facts(name)
    near = suggestion(name, catalog.names("stacks"))
    raise TopologyError(f"stack {name!r} is neither in the catalogue nor a file that holmes-sim calibrate wrote{near}")


def kept(given: StackConstants) -> dict[str, object]:
    """A stack as plain data of a topology, without the runs that it was fitted to."""
    facts = written_facts(given.stack())
    runs = len(given.cases) if isinstance(given, StackFacts) else given.runs
    return {"name": given.name, **({"runs": runs} if runs else {}), **facts, "fitted": given.fitted.written()}
