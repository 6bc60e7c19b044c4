"""study.yaml -> Study: a topology, and what of it, of its workload and of the plan is asked in which values.

`vary` is a grid: every value of a key with every value of the others, the last key fastest. `scenarios` is a list of changes
that go together; with both, each of the list with each point of the grid. A key is a place of the topology's file
(`links[0].bandwidth`, `workload.seq_len`; `sim.formats.edits`) or an option of the plan (`plan.tp`).
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from holmes_sim import commands
from holmes_sim.sweeping.options import OptionFacts
from sim.errors import TopologyError
from sim.formats.documents import Document, KeyPath, check, parse, read_text, suggestion
from sim.formats.edits import edited
from sim.formats.fields import StrictModel
from sim.hardware.topology import Topology

FORMAT = "holmes-sim/study/1"
PLAN = "plan."
"""What a key of the plan's options begins with."""
Values = Mapping[str, Any]
"""Key -> its value, in the order of the file."""


class StudyFacts(StrictModel):
    """What a study file may say; `plan` holds options of all its plans, of which scenarios may have others."""

    format: Literal["holmes-sim/study/1"]
    name: str
    source: str = ""
    topology: str
    plan: OptionFacts = OptionFacts()
    vary: dict[str, list[Any]] = Field(default={})
    scenarios: list[dict[str, Any]] = Field(default=[])


@dataclass(frozen=True, slots=True)
class Cell:
    """A value of a key, and where it stands in the file."""

    place: KeyPath
    key: str
    value: Any


@dataclass(frozen=True, slots=True)
class Scenario:
    """One question of a study: what is changed, the machines and options that come of it, or why none do (`fault`)."""

    values: Values
    topology: Topology | None
    options: OptionFacts
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Study:
    """A topology and the scenarios that are asked of it. `keys` are varied: those of the list, then those of the grid."""

    name: str
    topology: Topology
    keys: tuple[str, ...]
    scenarios: tuple[Scenario, ...]


def study_schema() -> dict[str, Any]:
    """The JSON Schema of a study file, for editors."""
    schema = StudyFacts.model_json_schema()
    schema["title"] = "holmes-sim study"
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    return schema


def folder() -> Path:
    """Where the shipped studies lie: in the package once installed, beside it in a checkout."""
    package = Path(__file__).parent.parent
    inside = package / "studies"
    return inside if inside.is_dir() else package.parent / "studies"


def shipped() -> tuple[str, ...]:
    """Names of the shipped studies, sorted."""
    return tuple(sorted(path.stem for path in folder().glob("*.yaml")))


def load(name: str | Path) -> Study:
    """A study from a file, or a shipped one by its name. Raises TopologyError with one line for every fault."""
    path = folder() / f"{name}.yaml" if str(name) in shipped() and not Path(name).exists() else Path(name)
    if not path.exists():
        raise TopologyError(f"{name}: neither a study file nor a shipped study{suggestion(str(name), shipped())}")
    document = parse(str(path), read_text(path))
    facts = check(document, StudyFacts, _faults(document))
    return _study(document, facts, _topology(document, facts.topology, path.parent))


def made(
    topology: Topology,
    vary: Mapping[str, Sequence[Any]],
    scenarios: Sequence[Values],
    plan: Values,
    name: str = "",
) -> Study:
    """A study of a topology at hand, checked like a file. Raises TopologyError."""
    name = name or topology.name
    text = {"format": FORMAT, "name": name, "topology": topology.name, "plan": dict(plan)}
    try:
        grid = {key: values if isinstance(values, str) else list(values) for key, values in vary.items()}
        written = json.dumps(text | {"vary": grid, "scenarios": list(map(dict, scenarios))})
    except (TypeError, ValueError) as error:
        raise TopologyError(f"study of {name}: values are text, numbers, lists and mappings ({error})") from None
    document = parse(f"study of {name}", written)
    return _study(document, check(document, StudyFacts, _faults(document)), topology)


def _topology(document: Document, name: str, beside: Path) -> Topology:
    given = beside / name if (beside / name).is_file() else Path(name)
    if not given.is_file() and name not in commands.shipped_topologies():
        raise TopologyError(document.fault(("topology",), f"{name!r} is neither a file nor a shipped topology"))
    return commands.load(given)


def _faults(document: Document) -> Iterator[tuple[KeyPath, str]]:
    """(place, text) of what the schema cannot see: nothing asked, a key without values, a key asked twice, odd values."""
    value = document.value if isinstance(document.value, dict) else {}
    vary, scenarios = value.get("vary") or {}, value.get("scenarios") or []
    if not vary and not scenarios:
        yield (), "nothing is varied; add vary: {key: [values]} or scenarios: [{key: value}]"
    if not isinstance(vary, dict) or not isinstance(scenarios, list):
        return
    for key, values in vary.items():
        yield from _cell_faults(("vary",), key, values)
        if values == []:
            yield ("vary", key), "at least one value is needed"
    for index, scenario in enumerate(scenarios):
        for key, cell in scenario.items() if isinstance(scenario, dict) else ():
            yield from _cell_faults(("scenarios", index), key, cell)
            if key in vary:
                yield ("scenarios", index, key), f"{key} is varied already, by vary"


def _cell_faults(at: KeyPath, key: object, value: object) -> Iterator[tuple[KeyPath, str]]:
    if not isinstance(key, str):
        yield (*at, str(key)), f"key {key!r} is not text; put it in quotes"
        return
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        yield (*at, key), f"{value!r} is neither text, number, list nor mapping; put it in quotes"


def _study(document: Document, facts: StudyFacts, topology: Topology) -> Study:
    """The scenarios of checked facts. Raises TopologyError for each value with which none of them can be made."""
    grid = [[Cell(("vary", key, index), key, value) for index, value in enumerate(facts.vary[key])] for key in facts.vary]
    listed = [
        [Cell(("scenarios", index, key), key, scenario[key]) for key in scenario]
        for index, scenario in enumerate(facts.scenarios)
    ]
    _check_options(document, [cell for cells in grid + listed for cell in cells if cell.key.startswith(PLAN)])
    found: list[Scenario] = []
    faults: dict[KeyPath, list[str]] = {}
    for together, point in itertools.product(listed or [[]], itertools.product(*grid)):
        cells = [*together, *point]
        scenario = _scenario(topology, {cell.key: cell.value for cell in cells}, facts.plan)
        found.append(scenario)
        for cell in cells:
            faults.setdefault(cell.place, []).append(scenario.fault)
    _check_values(document, faults)
    keys = dict.fromkeys(cell.key for cells in listed + grid for cell in cells)
    return Study(facts.name, topology, tuple(keys), tuple(found))


def _check_options(document: Document, cells: list[Cell]) -> None:
    """Raise TopologyError for options of plans that are none, or have no such value, with the lines of the study."""
    told: dict[str, None] = {}
    for cell in cells:
        name, line = cell.key.removeprefix(PLAN), document.line(cell.place)
        part = Document(document.name, {name: cell.value}, functools.partial(dict, {(name,): line}), [], ("plan",))
        try:
            check(part, OptionFacts)
        except TopologyError as error:
            told[str(error)] = None
    if told:
        raise TopologyError("\n".join(told))


def _scenario(topology: Topology, values: Values, plan: OptionFacts) -> Scenario:
    """A scenario of checked options; what is wrong with its machines is its fault."""
    given = {key.removeprefix(PLAN): value for key, value in values.items() if key.startswith(PLAN)}
    options = OptionFacts(**plan.model_dump() | given)
    try:
        found = edited(topology, {key: value for key, value in values.items() if not key.startswith(PLAN)})
    except TopologyError as error:
        text = "; ".join(str(error).splitlines()).replace(f"{topology.name}:1: ", "")
        return Scenario(values, None, options, text)
    if found.workload is None:
        without = f"{topology.name} has no workload; vary workload: [{{model: ..., global_batch_size: ..., seq_len: ...}}]"
        return Scenario(values, None, options, without)
    return Scenario(values, found, options)


def _check_values(document: Document, faults: Mapping[KeyPath, list[str]]) -> None:
    """Raise TopologyError where no scenario with a value can be made: a fault of the file, told once for each cause.

    It is told at the place whose key the cause names: of a key with one value, the others are in no scenario without it."""
    lost = {place: told for place, told in faults.items() if all(told)}
    lines: dict[str, int] = {}
    for cause in dict.fromkeys(cause for told in lost.values() for cause in told):
        having = [place for place, told in lost.items() if cause in told]
        place = next((place for place in having if _key(place) in cause), having[0])
        lines[document.fault(place, cause)] = document.line(place)
    if lines:
        raise TopologyError("\n".join(sorted(lines, key=lambda text: lines[text])))


def _key(place: KeyPath) -> str:
    """The key of a place of the study: behind `vary`, or behind the number of a scenario."""
    return str(place[1] if place[0] == "vary" else place[2])
