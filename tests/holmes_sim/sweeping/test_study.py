"""A study file becomes scenarios; faults of the file are reported with their lines, what cannot be together is a scenario's."""

from __future__ import annotations

import json

import jsonschema
import pytest
import yaml

from holmes_sim import commands
from holmes_sim.sweeping import study
from planner.request import Wishes
from sim.errors import TopologyError
from sim.formats.edits import edited

RATE = "clusters.ib.node.nics[0].bandwidth"


def values(path) -> list[dict]:
    return [dict(scenario.values) for scenario in study.load(path).scenarios]


def test_a_grid_is_every_value_with_every_other_the_last_key_fastest(quick):
    path = quick("vary:\n  workload.seq_len: [512, 1024]\n  plan.pp: [1, 2]\n")
    assert values(path) == [
        {"workload.seq_len": 512, "plan.pp": 1},
        {"workload.seq_len": 512, "plan.pp": 2},
        {"workload.seq_len": 1024, "plan.pp": 1},
        {"workload.seq_len": 1024, "plan.pp": 2},
    ]


def test_a_list_of_changes_go_together_each_with_each_point_of_the_grid(quick):
    path = quick("scenarios: [{}, {workload.seq_len: 512, plan.dp: 4}]\nvary:\n  plan.pp: [1, 2]\n")
    assert values(path) == [
        {"plan.pp": 1},
        {"plan.pp": 2},
        {"workload.seq_len": 512, "plan.dp": 4, "plan.pp": 1},
        {"workload.seq_len": 512, "plan.dp": 4, "plan.pp": 2},
    ]
    assert study.load(path).keys == ("workload.seq_len", "plan.dp", "plan.pp")


def test_a_scenario_has_its_machines_and_its_options(quick):
    path = quick(f"scenarios: [{{'{RATE}': 400 Gbit/s, workload.global_batch_size: 64, plan.pp: 2, plan.time_limit: 3}}]\n")
    (scenario,) = study.load(path).scenarios
    base = commands.load("lab/lab-hybrid-nics")
    assert scenario.topology == edited(base, {RATE: "400 Gbit/s", "workload.global_batch_size": 64})
    assert scenario.options.wishes() == Wishes(tp=1, pp=2, microbatch_size=1, recompute="none", schedule="1f1b")
    assert (scenario.options.strategy, scenario.options.objective, scenario.options.time_limit) == (
        "megatron",
        "step-time",
        3.0,
    )


def test_an_option_that_is_null_is_left_to_the_planner(quick):
    one, free = study.load(quick("vary:\n  plan.tp: [2, null]\n")).scenarios
    assert (one.options.wishes().tp, free.options.wishes().tp) == (2, None)


def test_changes_that_go_together_are_checked_together(quick):
    """Three nodes with two named hosts are wrong, three with three are not."""
    names = "clusters.ib.hosts"
    path = quick(f"scenarios:\n- {{{names}: [a, b]}}\n- {{{names}: [a, b, c], clusters.ib.nodes: 3}}\n")
    assert [scenario.fault for scenario in study.load(path).scenarios] == ["", ""]


def test_what_cannot_be_together_is_the_fault_of_its_scenario(quick):
    path = quick("vary:\n  clusters.ib.nodes: [2, 3]\n  clusters.ib.hosts: [[a, b], [a, b, c]]\n")
    assert [bool(scenario.fault) for scenario in study.load(path).scenarios] == [False, True, True, False]
    assert "3" in study.load(path).scenarios[2].fault and "\n" not in study.load(path).scenarios[2].fault


def test_a_topology_is_looked_for_beside_the_study(quick, tmp_path):
    facts = yaml.safe_load((commands.topologies_folder() / "lab" / "lab-slow-dp.yaml").read_text())
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(facts | {"name": "mine"}))
    path = quick("vary: {plan.pp: [1]}\n")
    path.write_text(path.read_text().replace("lab/lab-hybrid-nics", "mine.yaml"))
    assert study.load(path).topology.name == "mine"


@pytest.mark.parametrize(
    ("keys", "messages"),
    [
        ("", ["1: nothing is varied; add vary: {key: [values]} or scenarios: [{key: value}]"]),
        ("vary: {plan.pp: []}", ["5: vary.plan.pp: at least one value is needed"]),
        ("vary: {plan.pp: 3}", ["5: vary.plan.pp: a list is expected here, not 3"]),
        ("vary: {plan.qq: [3]}", ["5: plan.qq: unknown key; known: cp, dp, ep, "]),
        ("vary:\n  plan.pp:\n  - 1\n  - none\n  plan.schedule: [1f2b]", [
            "8: plan.pp: 'none' is not a whole number", "9: plan.schedule: '1f2b' is unknown; known: 1f1b, ",
        ]),
        ("vary: {plan.zero_stage: [4]}", ["5: plan.zero_stage: 4 is unknown; known: 0, 1, 2, 3"]),
        ("vary: {plan.strategy: [oracle]}", ["5: plan.strategy: 'oracle' is unknown; known: "]),
        ("vary: {plan.time_limit: [0]}", ["5: plan.time_limit: 0: input should be greater than or equal to 1"]),
        ("vary:\n  plan.pp: [1, 2]\n  clusters.ib.nodes:\n  - 2\n  - many", [
            "9: vary.clusters.ib.nodes[1]: clusters.ib.nodes: 'many' is not a whole number",
        ]),
        ("vary:\n  plan.pp: [1, 2]\n  links[0].colour: [red]", ["7: vary.links[0].colour[0]: links[0].colour: unknown key"]),
        ("vary: {'links[7].latency': [1 ms]}", [
            "5: vary.links[7].latency[0]: links[7].latency: there is no links[7]; the last one is links[0]",
        ]),
        ("scenarios:\n- {}\n- workload.seq_len: 1\n  links[0].latency: 3", [
            "8: scenarios[1].links[0].latency: links[0].latency: 3 is not a time: the unit is missing; write for",
        ]),
        ("vary: {plan.pp: [1]}\nscenarios: [{plan.pp: 2}]", ["6: scenarios[0].plan.pp: plan.pp is also in vary"]),
        ("vary: {3: [1]}", ["5: vary.3: key 3 is not text; put it in quotes"]),
        ("vary: {name: [2026-11-22]}", [
            "5: vary.name: [datetime.date(2026, 11, 22)] is not text, a number, a list or a mapping; put it in quotes",
        ]),
        ("vary: {workload: [null]}", ["5: vary.workload[0]: lab-hybrid-nics has no workload; vary workload: "]),
        ("varied: {}", ["5: varied: unknown key; did you mean 'vary'?"]),
    ],
)  # fmt: skip
def test_a_fault_of_the_file_is_reported_with_its_line(quick, keys, messages):
    path = quick(keys + "\n")
    with pytest.raises(TopologyError) as wrong:
        study.load(path)
    lines = [line for line in str(wrong.value).splitlines() if "nothing is varied" not in line or not keys]
    assert len(lines) == len(messages)
    for line, start in zip(lines, messages, strict=True):
        assert line.startswith(f"{path}:{start}")


def test_a_study_or_topology_that_is_not_there_is_one_line(quick):
    with pytest.raises(TopologyError, match=r"^trunk-and-bach: neither a file|did you mean 'trunk-and-batch'"):
        study.load("trunk-and-bach")
    path = quick("vary: {plan.pp: [1]}\n")
    path.write_text(path.read_text().replace("lab/lab-hybrid-nics", "nowhere"))
    with pytest.raises(TopologyError) as wrong:
        study.load(path)
    assert str(wrong.value) == f"{path}:3: topology: 'nowhere' is neither a file nor a shipped topology"


def test_a_study_of_python_is_that_of_the_file(quick):
    path = quick(f"scenarios: [{{}}, {{'{RATE}': 400 Gbit/s}}]\nvary: {{plan.pp: [1, 2]}}\n")
    plan = {"tp": 1, "microbatch_size": 1, "recompute": "none", "schedule": "1f1b", "strategy": "megatron"}
    made = study.study_of(
        commands.load("lab/lab-hybrid-nics"), {"plan.pp": (1, 2)}, [{}, {RATE: "400 Gbit/s"}], plan, "quick"
    )  # fmt: skip
    assert made == study.load(path)


def test_what_is_no_value_is_one_line_in_python_too():
    topology = commands.load("lab/lab-hybrid-nics")
    with pytest.raises(TopologyError, match=r"^sweep of lab-hybrid-nics: values must be text, numbers, lists or mappings"):
        study.study_of(topology, {"plan.pp": [object()]}, [], {})
    with pytest.raises(TopologyError, match=r"^sweep of lab-hybrid-nics:1: plan.pp: 'x' is not a whole number$"):
        study.study_of(topology, {"plan.pp": ["x"]}, [], {})
    with pytest.raises(TopologyError, match=r"^sweep of .*:1: vary.plan.strategy: a list is expected here, not 'holmes'$"):
        study.study_of(topology, {"plan.strategy": "holmes"}, [], {})


@pytest.mark.parametrize("name", study.shipped())
def test_a_shipped_study_is_valid_bears_its_name_and_has_no_faults(name, run):
    path = study.folder() / f"{name}.yaml"
    schema = json.loads(run("schema", "study").out)
    jsonschema.validate(yaml.safe_load(path.read_text()), schema)
    found = study.load(name)
    assert found.name == name
    assert not any(scenario.fault for scenario in found.scenarios)


def test_studies_are_shipped():
    assert set(study.shipped()) == {"both-nics", "lab-layouts", "trunk-and-batch"}
