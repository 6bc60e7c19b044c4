"""study.yaml -> Study: a topology, and the values of keys of the topology, of its workload and of the plan.

`vary` is a grid: all combinations of the values, the last key varies fastest. `scenarios` is a list of changes that belong
together. If both are given, each scenario is combined with each point of the grid. A key is a path in the topology file
(`links[0].bandwidth`, `workload.seq_len`; `sim.formats.edits`) or an option of the plan (`plan.tp`).
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from holmes_sim import commands, requirements
from holmes_sim.sweeping.options import OptionFacts
from sim.errors import TopologyError
from sim.formats.documents import Document, KeyPath, check, parse, read_text
from sim.formats.edits import edited
from sim.formats.fields import StrictModel
from sim.formats.suggestions import suggestion
from sim.hardware.topology import Topology

FORMAT = "holmes-sim/study/1"
PLAN = "plan."
"""Prefix of keys that are options of the plan."""
Values = Mapping[str, Any]
"""Key -> value, in the order of the file."""


class StudyFacts(StrictModel):
    """Schema of a study file. `plan` has the options of all plans; scenarios may override them."""

    format: Literal["holmes-sim/study/1"]
    name: str
    source: str = ""
    topology: str
    plan: OptionFacts = OptionFacts()
    vary: dict[str, list[Any]] = Field(default={})
    scenarios: list[dict[str, Any]] = Field(default=[])


@dataclass(frozen=True, slots=True)
class Cell:
    """A value of a key, and its path in the study file."""

    place: KeyPath
    key: str
    value: Any


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scenario: the changed values, the resulting topology and options, or the reason why it cannot be made (`fault`)."""

    values: Values
    topology: Topology | None
    options: OptionFacts
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Study:
    """A topology and the scenarios to plan. `keys` are the varied keys: those of the list, then those of the grid."""

    name: str
    topology: Topology
    keys: tuple[str, ...]
    scenarios: tuple[Scenario, ...]


def folder() -> Path:
    """Folder of the shipped studies: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).parent.parent
    inside = package / "studies"
    return inside if inside.is_dir() else package.parent / "studies"


def shipped() -> tuple[str, ...]:
    """Names of the shipped studies, sorted."""
    return tuple(sorted(path.stem for path in folder().glob("*.yaml")))


def load(name: str | Path, require: str | Path | None = None) -> Study:
    """A study from a file, or a shipped study by name; with a file of requirements, which its scenarios may change. Raises
    TopologyError with one line per fault."""
    path = folder() / f"{name}.yaml" if str(name) in shipped() and not Path(name).exists() else Path(name)
    if not path.exists():
        raise TopologyError(f"{name}: neither a study file nor a shipped study{suggestion(str(name), shipped())}")
    document = parse(str(path), read_text(path))
    facts = check(document, StudyFacts, _faults(document))
    topology = _topology(document, facts.topology, path.parent)
    return _study(document, facts, requirements.require(topology, require) if require is not None else topology)


def study_of(
    topology: Topology,
    vary: Mapping[str, Sequence[Any]],
    scenarios: Sequence[Values],
    plan: Values,
    name: str = "",
) -> Study:
    """A study of a given topology, checked like a file. Raises TopologyError."""
    name = name or topology.name
    text = {"format": FORMAT, "name": name, "topology": topology.name, "plan": dict(plan)}
    try:
        grid = {key: values if isinstance(values, str) else list(values) for key, values in vary.items()}
        written = json.dumps(text | {"vary": grid, "scenarios": list(map(dict, scenarios))})
    except (TypeError, ValueError) as error:
        raise TopologyError(f"sweep of {name}: values must be text, numbers, lists or mappings ({error})") from None
    document = parse(f"sweep of {name}", written)
    return _study(document, check(document, StudyFacts, _faults(document)), topology)


def _topology(document: Document, name: str, beside: Path) -> Topology:
    """The topology of a study: a file beside the study, another file, or a shipped topology."""
    given = beside / name if (beside / name).is_file() else Path(name)
    if not given.is_file() and name not in commands.shipped_topologies():
        raise TopologyError(document.fault(("topology",), f"{name!r} is neither a file nor a shipped topology"))
    return commands.load(given)


def _faults(document: Document) -> Iterator[tuple[KeyPath, str]]:
    """(path, message) of faults that the schema cannot find: nothing varied, keys without values, keys varied twice, bad
    values.
    """
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
                yield ("scenarios", index, key), f"{key} is also in vary; give it in one place"


def _cell_faults(at: KeyPath, key: object, value: object) -> Iterator[tuple[KeyPath, str]]:
    """Faults of one key and value."""
    if not isinstance(key, str):
        yield (*at, str(key)), f"key {key!r} is not text; put it in quotes"
        return
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        yield (*at, key), f"{value!r} is not text, a number, a list or a mapping; put it in quotes"


def _study(document: Document, facts: StudyFacts, topology: Topology) -> Study:
    """The study of checked facts. Raises TopologyError for each value with which no scenario can be made."""
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
    """Raise TopologyError, with lines of the study, for unknown options of plans and values they do not allow."""
    faults: dict[str, None] = {}
    for cell in cells:
        name, line = cell.key.removeprefix(PLAN), document.line(cell.place)
        part = Document(document.name, {name: cell.value}, functools.partial(dict, {(name,): line}), [], ("plan",))
        try:
            check(part, OptionFacts)
        except TopologyError as error:
            faults[str(error)] = None
    if faults:
        raise TopologyError("\n".join(faults))


def _scenario(topology: Topology, values: Values, plan: OptionFacts) -> Scenario:
    """A scenario with checked options; an error of its topology becomes its fault."""
    given = {key.removeprefix(PLAN): value for key, value in values.items() if key.startswith(PLAN)}
    options, wrong = _options(plan, given)
    if wrong:
        return Scenario(values, None, options, wrong)
    try:
        found = edited(topology, {key: value for key, value in values.items() if not key.startswith(PLAN)})
    except TopologyError as error:
        text = "; ".join(str(error).splitlines()).replace(f"{topology.name} with edits: ", "")
        return Scenario(values, None, options, text)
    if found.workload is None:
        without = f"{topology.name} has no workload; vary workload: [{{model: ..., global_batch_size: ..., seq_len: ...}}]"
        return Scenario(values, None, options, without)
    return Scenario(values, found, options)


def _options(plan: OptionFacts, given: dict[str, Any]) -> tuple[OptionFacts, str]:
    """The options of a plan with others in place of some, and why they contradict each other; empty if they do not."""
    try:
        return OptionFacts(**plan.model_dump() | given), ""
    except ValidationError as error:
        return plan, "; ".join(one["msg"].removeprefix("Value error, ") for one in error.errors())


def with_options(given: Study, options: Values) -> Study:
    """The study with these options of plans, where a scenario does not vary them. Raises TopologyError where no scenario can
    have them."""
    found = []
    for one in given.scenarios:
        own, wrong = _options(one.options, {name: value for name, value in options.items() if PLAN + name not in one.values})
        found.append(replace(one, options=own, fault=one.fault or wrong, topology=None if wrong else one.topology))
    if all(one.fault for one in found):
        raise TopologyError("\n".join(dict.fromkeys(f"study {given.name}: {one.fault}" for one in found)))
    return replace(given, scenarios=tuple(found))


def _check_values(document: Document, faults: Mapping[KeyPath, list[str]]) -> None:
    """Raise TopologyError for values with which no scenario can be made, once for each cause.

    The message has the line of the key that the cause names. Other keys of these scenarios may have no fault: a key with one
    value is in all scenarios.
    """
    lost = {place: causes for place, causes in faults.items() if all(causes)}
    lines: dict[str, int] = {}
    for cause in dict.fromkeys(cause for causes in lost.values() for cause in causes):
        having = [place for place, causes in lost.items() if cause in causes]
        place = next((place for place in having if _key(place) in cause), having[0])
        lines[document.fault(place, cause)] = document.line(place)
    if lines:
        raise TopologyError("\n".join(sorted(lines, key=lambda text: lines[text])))


def _key(place: KeyPath) -> str:
    """The key at a path of the study: after `vary`, or after the number of a scenario."""
    return str(place[1] if place[0] == "vary" else place[2])
