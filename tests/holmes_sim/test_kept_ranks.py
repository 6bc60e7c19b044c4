"""`ranks: {keep: plan.json}` in requirements: the file, read once; faults in one line; replan and the planner."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from holmes_sim import commands
from holmes_sim.replanning import replan
from holmes_sim.requirements import request, require, text, written
from planner import api
from planner.islands.budgets import check_limits
from sim.errors import Infeasible, OptionError, TopologyError
from sim.formats import planfile
from sim.formats.require_facts import RequireFacts
from sim.plan.plan import Plan
from sim.workload.workload import Workload

LAB = commands.load("lab/lab-hybrid-nics")
WORKLOAD = commands.workload_of(LAB)


@pytest.fixture(scope="module")
def old(tmp_path_factory) -> tuple[Path, Plan]:
    """Four ranks: two stages of two replicas, one cluster each."""
    given = require(LAB, {"tp": 1, "pp": 2, "dp": 2, "first_stage": "ib", "last_stage": "roce", "schedule": "1f1b"})
    wished = request(given, WORKLOAD, target="none")
    plan = api.plan(wished)
    path = tmp_path_factory.mktemp("plans") / "old.json"
    path.write_text(planfile.to_json(plan))
    return path, plan


def needs(path: Path, more: str = "") -> Path:
    """A file of requirements beside a plan's file, which it names."""
    need = path.with_name("need.yaml")
    need.write_text(f"format: holmes-sim/require/1\nranks: {{keep: {path.name}}}\n{more}")
    return need


def test_the_file_is_read_once_and_its_path_is_relative_to_the_requirements(old, tmp_path, monkeypatch):
    path, plan = old
    monkeypatch.chdir(tmp_path)
    where = require(LAB, needs(path))
    assert written(where)["ranks"]["keep"]["placement"] == [str(device) for device in plan.placement]
    assert text(RequireFacts.model_validate(written(where)), "ranks") == "ranks kept as in old.json"
    kept = request(where, WORKLOAD).limits.ranks
    assert kept is not None and (kept.config, kept.stages, kept.fault(plan)) == (plan.config, plan.stages, "")
    with pytest.raises(OptionError, match=r"require.ranks.keep: old.json: no such file"):
        require(LAB, {"ranks": {"keep": "old.json"}})
    assert written(require(LAB, {"ranks": {"keep": str(path)}})) == written(where)


def test_a_topology_names_a_plan_beside_it(old):
    path, plan = old
    facts = LAB.facts() | {"require": {"ranks": {"keep": "old.json"}}}
    site = path.with_name("site.json")
    site.write_text(json.dumps(facts))
    kept = request(commands.load(site), WORKLOAD).limits.ranks
    assert kept is not None and kept.placement == plan.placement


def test_lost_nodes_leave_the_others_where_they_are(old):
    path, plan = old
    where = require(LAB, needs(path, "nodes: {exclude: [ib/node0]}\n"))
    found = api.plan(request(where, WORKLOAD, target="none"))
    free = replace(plan, topology=LAB)  # whose requirements hold dp 2
    stayed = replan(free, "ib/node0", stay=True, target="none")
    assert found.prediction is not None and stayed.plan.prediction is not None
    assert found.config.dp == stayed.plan.config.dp == 1
    assert found.prediction.step_s <= stayed.plan.prediction.step_s
    assert stayed.moved(found).moving == 0
    with pytest.raises(Infeasible, match=r"ranks kept as in old.json"):  # no stage 0 is left
        replan(found, "ib/node0", target="none")


def test_faults_are_one_line_each(old, tmp_path):
    path, _ = old
    bad = tmp_path / "bad.json"
    bad.write_text("{}")
    for name, said in (
        ("nope.json", "ranks.keep: nope.json: no such file; `holmes-sim plan TOPOLOGY -o plan.json` makes a plan"),
        ("bad.json", "bad.json:1: format: this key is missing"),
    ):
        with pytest.raises(TopologyError, match=f"need.yaml:2: .*{said}") as caught:
            require(LAB, needs(tmp_path / name))
        assert len(str(caught.value).splitlines()) == 1
    with pytest.raises(
        TopologyError,
        match=r"need.yaml:2: ranks.keep: rank 0 of old.json is on ib/.*, which mixed-h100-a100-v100 does not have",
    ):
        require(commands.load("mixed-h100-a100-v100"), needs(path))
    other = Workload(commands.load("holmes-hybrid-4").workload.model, 8, 64, "fp32")
    with pytest.raises(
        OptionError, match=r"require.ranks.keep: old.json has \d+ layers of .*, but gpt-3.6b with 30 is planned"
    ):
        request(require(LAB, needs(path)), other)


def test_islands_divide_devices_anew(old):
    with pytest.raises(OptionError, match=r"require.ranks, ranks kept as in old.json: islands divide the devices anew"):
        check_limits(request(require(LAB, needs(old[0])), WORKLOAD).limits)
