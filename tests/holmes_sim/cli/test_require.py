"""--require: plans that keep to what a file says, what that costs, and what conflicts."""

from __future__ import annotations

import json

import pytest

from tests.holmes_sim.cli.arguments import PINNED

HEAD = "format: holmes-sim/require/1\n"
LAB = ("plan", "lab/lab-hybrid-nics", "--for", "none")
"""Four devices in two clusters have few layouts, and without a target there is one search, so that it is short."""


@pytest.fixture
def need(tmp_path):
    """Writes a file of requirements."""

    def write(text: str):
        path = tmp_path / "need.yaml"
        path.write_text(HEAD + text)
        return path

    return write


def test_a_plan_keeps_to_a_file_and_says_so(run, need):
    seen = run(*LAB, "--require", need("devices: {max: 2}\nschedule: 1f1b\nrecompute: none\n"))
    assert seen.code == 0
    assert "Required: schedule 1f1b; recompute none; devices at most 2." in " ".join(seen.out.split())


def test_a_plan_file_keeps_its_requirements(run, need, tmp_path):
    out = tmp_path / "plan.json"
    path = need("devices: {max: 2}\nnodes: {exclude: [ib/node1]}\nschedule: 1f1b\nrecompute: none\n")
    assert run(*LAB, "--require", path, "-o", out).code == 0
    plan = json.loads(out.read_text())
    assert plan["topology"]["require"]["devices"] == {"max": 2} and "nodes" not in plan["topology"]["require"]
    assert len(plan["placement"]) <= 2
    space = {axis["axis"]: axis["values"] for axis in plan["certificate"]["space"]}
    assert space["required"][-1] == "devices at most 2"
    seen = run("replan", out, "--lost", "roce/node0", "--json")
    assert seen.code == 0
    assert len(json.loads(seen.out)["plan"]["placement"]) <= 2


@pytest.mark.parametrize(("stages", "clusters"), [("1, cluster: roce", "ib roce"), ("-2, cluster: roce", "roce ib")])
def test_a_stage_is_kept_on_a_cluster(run, need, tmp_path, stages, clusters):
    out = tmp_path / "plan.json"
    pins = ("--microbatch-size", 2, "--recompute", "none", "--schedule", "1f1b", "--tp", 1, "--pp", 2, "--dp", 2)
    assert run(*LAB, *pins, "--require", need(f"stages: [{{stage: {stages}}}]\n"), "-o", out).code == 0
    placement = [device.partition("/")[0] for device in json.loads(out.read_text())["placement"]]
    assert " ".join(dict.fromkeys(placement)) == clusters


def test_ranks_are_kept_where_they_are(run, need, tmp_path):
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    pins = ("--tp", 1, "--pp", 2, "--dp", 2, "--schedule", "1f1b", "--microbatch-size", 4)
    assert run(*LAB, *pins, "-o", old).code == 0
    path = need("ranks: {keep: old.json}\n")
    seen = run(*LAB, "--require", path, "-o", new)
    assert seen.code == 0
    said = " ".join(seen.out.split())
    assert "Required: ranks kept as in old.json." in said and "this plan is the best of them." in said
    assert {*json.loads(new.read_text())["placement"]} <= {*json.loads(old.read_text())["placement"]}
    seen = run(*LAB, "--pp", 4, "--require", path)
    assert seen.code == 3
    assert seen.err.splitlines()[0] == (
        "error: no plan of lab-hybrid-nics has all of: ranks kept as in old.json; --pp 4 (the smallest set that conflicts)"
    )
    seen = run("compare", "lab/lab-hybrid-nics", "--strategies", "certified,megatron", "--require", path)
    assert seen.code == 0
    seen = run("what-if", "lab/lab-hybrid-nics", "--for", "none", "--require", path, "--time-limit", 5)
    assert seen.code == 0
    seen = run(*LAB, "--require", need("ranks: {keep: odl.json}\n"))
    assert (seen.code, seen.err.splitlines()) == (
        2,
        [f"error: {path}:2: ranks.keep: odl.json: no such file; `holmes-sim plan TOPOLOGY -o plan.json` makes a plan"],
    )


def test_explain_says_what_each_requirement_costs(run, need):
    path = need("devices: {max: 2}\nfirst_stage: ib\n")
    seen = run(*LAB, "--microbatch-size", 2, "--recompute", "none", "--schedule", "1f1b", "--require", path, "--explain")
    assert seen.code == 0
    table = seen.out.partition("What each requirement costs")[2]
    assert "of every step" in next(line for line in table.splitlines() if line.startswith("devices at most 2"))
    assert any(line.startswith("first_stage ib") for line in table.splitlines())


def test_what_conflicts_is_named_with_the_step_without_each(run, need):
    seen = run("plan", "holmes-hybrid-4", *PINNED, "--require", need("tp: {max: 1}\nzero_stage: 1\nschedule: 1f1b\n"))
    assert (seen.code, seen.out) == (3, "")
    first, *others = seen.err.splitlines()
    assert first == "error: no plan of holmes-hybrid-4 has all of: tp at most 1; --tp 2 (the smallest set that conflicts)"
    assert [line.partition(": a step of ")[0] for line in others] == ["error: without tp at most 1", "error: without --tp 2"]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("tp: {most: 4}\n", "need.yaml:2: tp: a range has min, max or both, not most"),
        ("devces: {max: 4}\n", "need.yaml:2: devces: unknown key; did you mean 'devices'?"),
        ("\nlast_stage: rocee\n", "need.yaml:3: last_stage: cluster 'rocee' does not exist; did you mean 'roce'?"),
    ],
)
def test_a_wrong_file_is_one_line(run, need, text, fault):
    seen = run("plan", "holmes-hybrid-4", "--require", need(text))
    assert (seen.code, seen.out) == (2, "")
    assert seen.err.rstrip().endswith(fault)


def test_a_file_that_does_not_exist(run, tmp_path):
    seen = run("plan", "holmes-hybrid-4", "--require", tmp_path / "none.yaml")
    assert (seen.code, seen.err) == (2, f"error: {tmp_path / 'none.yaml'}: no such file\n")


FEW = "devices: {max: 8}\ntp: 2\nrecompute: none\nmicrobatch_size: 4\nschedule: 1f1b\nzero_stage: 1\n"


def test_strategies_keep_to_it(run, need, tmp_path):
    given = "compare", "holmes-hybrid-4", "--strategies", "certified,random", "--require", need(FEW), "-o", tmp_path / "plans"
    assert run(*given).code == 0
    found = {path.stem: json.loads(path.read_text()) for path in (tmp_path / "plans").glob("*.json")}
    assert set(found) == {"certified", "random"}
    assert all(plan["config"]["tp"] == 2 and len(plan["placement"]) <= 8 for plan in found.values())


def test_changes_keep_to_it(run, need):
    """More nodes gain nothing where eight devices are allowed."""
    seen = run("what-if", "holmes-infiniband-4", "--require", need(FEW), "--time-limit", "4", "--json")
    assert seen.code == 0
    gains = {row["change"]: row["gain"] for row in json.loads(seen.out)["rows"]}
    more = [gain for change, gain in gains.items() if "nodes, not 4" in change and change[4] in "56789"]
    assert more and all(gain == 0.0 for gain in more if gain is not None)


def test_the_schema_is_printed(run):
    seen = run("schema", "require")
    assert seen.code == 0
    assert json.loads(seen.out)["title"] == "holmes-sim require"
