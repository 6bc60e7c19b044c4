"""Reader of uploaded topologies and plans. A name in them is one of the catalogue: no other file is opened for a client."""

from __future__ import annotations

from holmes_sim import requirements
from sim.errors import TopologyError
from sim.formats import catalog, planfile
from sim.formats.documents import Document, KeyPath, parse
from sim.formats.suggestions import suggestion
from sim.formats.topology import from_document
from sim.hardware.topology import Topology
from sim.plan.plan import Plan

NAMED: dict[KeyPath, str] = {("workload", "model"): "models", ("profile",): "profiles", ("stack",): "stacks"}
"""Key of a topology whose text may be a path elsewhere -> folder of the catalogue."""


def read(name: str, data: bytes) -> Topology | Plan:
    """The topology or plan of an uploaded file; `name` is that of the file in messages. Raises TopologyError, PlanError."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        raise TopologyError(f"{name}: not a UTF-8 text file ({fault.reason} at byte {fault.start})") from None
    document = parse(name, text)
    is_plan = str(_at(document.value, ("format",)) or "").startswith("holmes-sim/plan")
    _only_names(document, ((), ("topology",)) if is_plan else ((),))
    if is_plan:
        return planfile.from_text(name, text)
    found = from_document(document)
    requirements.check_document(found, document)
    return found


def _only_names(document: Document, places: tuple[KeyPath, ...]) -> None:
    """Raise TopologyError where a topology names something that is not in the catalogue, such as a file."""
    for place in places:
        for key, kind in NAMED.items():
            value = _at(document.value, (*place, *key))
            if isinstance(value, str) and value not in catalog.names(kind):
                near = f"{suggestion(value, catalog.names(kind))}; this page opens no other file"
                raise TopologyError(
                    document.fault((*place, *key), f"{catalog.KINDS[kind]} {value!r} is not in the catalogue{near}")
                )


def _at(value: object, path: KeyPath) -> object:
    """The value at a path of a parsed file; None if there is none."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value
