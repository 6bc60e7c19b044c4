"""The commands holmes-sim show, list and schema."""

from __future__ import annotations

import json

import jsonschema
import pytest
import yaml
from typer.testing import CliRunner

from holmes_sim import cli, commands
from tests.holmes_sim.cli.arguments import KINDS


def test_show_a_topology_by_name_and_by_file(run):
    named = run("show", "holmes-hybrid-4")
    by_file = run("show", commands.topologies_folder() / "holmes-hybrid-4.yaml")
    assert named.code == by_file.code == 0
    assert named.out == by_file.out
    for words in ("holmes-hybrid-4: 32 devices", "ib", "roce", "a100-sxm4-80gb", "gpt-3.6b", "Links between clusters"):
        assert words in named.out, words


def test_show_a_topology_as_json_prints_its_file(run):
    document = json.loads(run("show", "holmes-hybrid-4", "--json").out)
    assert document == yaml.safe_load((commands.topologies_folder() / "holmes-hybrid-4.yaml").read_text())


def test_show_a_plan(run, plan_file):
    seen = run("show", plan_file)
    assert seen.code == 0
    for words in ("tp 2 | pp 2 | dp 8", "Stages", "Groups", "infiniband", "roce"):
        assert words in seen.out, words
    assert json.loads(run("show", plan_file, "--json").out) == json.loads(plan_file.read_text())


@pytest.mark.parametrize(
    ("counts", "words", "columns"),
    [(3, "recompute 3 layers a stage", ["3", "3"]), (1, "recompute 1 layer a stage", ["1", "1"]),
     ([2, 0], "recompute some layers", ["2", "0"])],
)  # fmt: skip
def test_recomputed_layers_are_a_column_of_the_stages(run, plan_file, tmp_path, counts, words, columns):
    document = json.loads(plan_file.read_text())
    document["config"] |= {"recompute": "full", "recompute_layers": counts}
    changed = tmp_path / "changed.json"
    changed.write_text(json.dumps(document))
    seen = run("show", changed)
    assert (seen.code, words in seen.out) == (0, True)
    _, head, *rows = seen.out.partition("Stages\n")[2].splitlines()[: 2 + len(columns)]
    end = head.index(" recomputed") + len(" recomputed")
    assert [row[:end].split()[-1] for row in rows] == columns


def test_a_page_has_the_column_where_layers_are_recomputed(run, plan_file, tmp_path):
    document = json.loads(plan_file.read_text())
    document["config"] |= {"recompute": "full", "recompute_layers": [2, 0]}
    changed, page = tmp_path / "changed.json", tmp_path / "page.html"
    changed.write_text(json.dumps(document))
    for plan, has_column in ((changed, True), (plan_file, False)):
        assert run("report", plan, "-o", page).code == 0
        assert ("recomputed</th>" in page.read_text()) == has_column


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_show_draws_topologies_and_plans(run, plan_file, tmp_path, ending):
    magic = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[ending]
    for what in ("holmes-hybrid-4", plan_file):
        picture = tmp_path / f"picture.{ending}"
        assert run("show", what, "-o", picture).code == 0
        assert picture.read_bytes().startswith(magic)
        picture.unlink()


@pytest.mark.parametrize("kind", KINDS)
def test_list_names_every_entry(run, kind):
    document = json.loads(run("list", kind, "--json").out)
    assert document["kind"] == kind
    assert document["names"] and (kind == "targets" or document["names"] == sorted(document["names"]))
    words = run("list", kind)
    assert words.code == 0
    assert all(name in words.out for name in document["names"])


def test_list_has_shipped_entries(run):
    def names(kind: str) -> set[str]:
        return set(json.loads(run("list", kind, "--json").out)["names"])

    assert {"certified", "holmes", "megatron"} <= names("strategies")
    assert {"1f1b", "gpipe", "interleaved"} <= names("schedules")
    assert {"ring", "tree", "hierarchical"} <= names("collectives")
    assert {"csv", "torchrun"} <= names("targets")
    assert {"infiniband", "roce", "ethernet"} <= names("nics")
    assert {"holmes-hybrid-4", "hethub-768"} <= names("topologies")


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    """Validates topologies with the schema that the command line prints."""
    schema = json.loads(CliRunner().invoke(cli.application(), ["schema", "topology"]).stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("name", commands.shipped_topologies())
def test_every_shipped_topology_is_valid_by_the_printed_schema(validator, name):
    validator.validate(yaml.safe_load((commands.topologies_folder() / f"{name}.yaml").read_text()))


def test_the_schema_forbids_unknown_keys(run):
    schema = json.loads(run("schema", "topology").out)
    data = yaml.safe_load((commands.topologies_folder() / "holmes-hybrid-4.yaml").read_text()) | {"clustres": {}}
    with pytest.raises(jsonschema.ValidationError, match="clustres"):
        jsonschema.validate(data, schema)
