"""The registry of schemas: names and formats agree, JSON Schemas are valid and describe every number, commands are listed."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import jsonschema
import pytest

from holmes_sim import schemas
from holmes_sim.cli import commands, completion
from holmes_sim.schemas.sweep import SweepRow
from holmes_sim.sweeping.table import RESULT_COLUMNS
from sim.errors import OptionError
from sim.formats.stack_facts import StackFacts
from sim.formats.topology_facts import TopologyFacts

READ = ("expert-counts", "require", "study")
"""Files that no command writes."""
FURTHER_FORMATS = {"plan": ("holmes-sim/plan/2",)}
"""Formats behind the first one."""
NUMBERS = ("integer", "number")


@pytest.mark.parametrize("module", [module.name for module in iter_modules(schemas.__path__)])
def test_names_and_formats_agree(module: str) -> None:
    entry = import_module(f"holmes_sim.schemas.{module}")
    assert module.rstrip("_").replace("_", "-") == entry.NAME
    assert f"holmes-sim/{entry.NAME}/1" == entry.FORMAT
    assert schemas.formats(entry) == (entry.FORMAT, *FURTHER_FORMATS.get(entry.NAME, ()))
    assert (entry.WRITTEN_BY == ()) == (entry.NAME in READ)


@pytest.mark.parametrize("name", [schemas.RESULT, *READ])
def test_the_json_schema_is_valid(name: str) -> None:
    """That of `result` contains those of all results."""
    jsonschema.Draft202012Validator.check_schema(json.loads(json.dumps(schemas.schema(name))))


@pytest.mark.parametrize("name", schemas.names())
def test_the_json_schema_names_its_dialect(name: str) -> None:
    found = schemas.schema(name)
    assert (found["$schema"], found["title"]) == (
        "https://json-schema.org/draft/2020-12/schema", f"holmes-sim {name.replace('-', ' ')}"
    )  # fmt: skip


def kinds(facts: dict[str, Any]) -> Iterator[str]:
    """JSON types of a value without a description, and of the items and values inside it."""
    if "description" in facts:
        return
    yield facts.get("type", "")
    inside = [*facts.get("anyOf", ()), *facts.get("prefixItems", ()), facts.get("items"), facts.get("additionalProperties")]
    for one in inside:
        if isinstance(one, dict):
            yield from kinds(one)


def test_every_number_of_a_result_has_a_description() -> None:
    """The parts of plans, topologies, stacks and profiles are described in prose."""
    files = [schemas.schema("plan"), TopologyFacts.model_json_schema(), StackFacts.model_json_schema()]
    described = {part for file in files for part in file.get("$defs", {})} - {"PredictionFacts"}
    described |= {"PlanFacts", "StackFacts", "TopologyFacts", "ProfileFacts", "ProfileRowFacts", "ProfileModelFacts"}
    missing = [
        f"{part}.{key}"
        for part, facts in schemas.schema("result")["$defs"].items()
        if part not in described
        for key, value in facts.get("properties", {}).items()
        if set(kinds(value)) & set(NUMBERS)
    ]
    assert missing == []


def test_every_command_with_json_has_a_schema() -> None:
    printing = {one.NAME for one in commands.in_order() if "as_json" in inspect.signature(one.command).parameters}
    written = {line.split()[0] for entry in schemas.results() for line in entry.WRITTEN_BY}
    assert printing - written == set()
    assert written <= printing
    known = {one.NAME for one in commands.in_order()}
    assert written <= known


def test_result_accepts_a_document_of_each_format_only() -> None:
    mapping = schemas.schema("result")["discriminator"]["mapping"]
    assert sorted(mapping) == sorted(name for entry in schemas.results() for name in schemas.formats(entry))
    assert len(mapping) == len(schemas.REGISTRY.names) - len(READ) + len(FURTHER_FORMATS)


def test_shells_complete_the_names() -> None:
    assert completion.schemas("") == list(schemas.names())


def test_an_unknown_name_is_one_line_with_all_names() -> None:
    with pytest.raises(OptionError) as refused:
        schemas.schema("reprot")
    assert str(refused.value) == f"schema 'reprot' is unknown; known: {', '.join(schemas.names())}"


def test_the_command_lists_and_prints(run) -> None:
    listed = run("schema", "--list").out
    assert all(f"\n{entry.NAME} " in listed and entry.FORMAT in listed for entry in schemas.REGISTRY.entries())
    assert json.loads(run("schema", "report").out) == schemas.schema("report")
    both = run("schema", "report", "--list")
    assert (both.code, both.out) == (2, "")
    assert both.err.startswith("error: give either the name of a schema or --list; known: result, breakdown, ")
    assert run("schema").err == both.err


def test_the_page_lists_every_document() -> None:
    page = (Path(__file__).parents[3] / "docs" / "programs.md").read_text(encoding="utf-8")
    rows = dict(
        re.findall(r"^\| `([a-z-]+)` \| .+? \| (.+) \|$", page.split("## Documents\n")[1].split("\n## ")[0], re.MULTILINE)
    )
    assert list(rows) == list(schemas.REGISTRY.names)
    for entry in schemas.REGISTRY.entries():
        assert rows[entry.NAME].replace("`", "") == (", ".join(entry.WRITTEN_BY) or "you")


def test_a_row_of_a_sweep_has_the_columns_of_its_table() -> None:
    assert list(SweepRow.model_fields) == list(RESULT_COLUMNS)
