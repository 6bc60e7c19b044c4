"""Replanning: the plan that is written stands on machines that are there, promises what it does, and says what moves."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import holmes_sim as hs
from holmes_sim import commands, exporters, files, replanning
from holmes_sim.launching import hosts
from holmes_sim.replanning import replan
from holmes_sim.requirements import require
from planner.costs.context import PlanningContext
from planner.request import Wishes
from sim.engine.engine import simulate
from sim.errors import Infeasible
from sim.formats import planfile
from sim.plan.plan import MadeBy, Plan
from tests.more import more

Make = Callable[..., Any]
PINS = {"tp": 2, "pp": 2, "microbatch_size": 4, "recompute": "none", "schedule": "1f1b", "cp": 1}


@pytest.fixture(scope="module")
def hybrid() -> Plan:
    """Two nodes of ib, two of roce; a stage on each cluster."""
    return commands.plan(commands.load("holmes-hybrid-4"), wishes=Wishes(dp=8, **PINS), target="none").plan


@pytest.fixture(scope="module")
def written(hybrid: Plan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plans") / "plan.json"
    files.write(path, planfile.to_json(hybrid))
    return path


def test_the_new_plan_names_the_hosts_that_are_left(hybrid: Plan) -> None:
    found = hs.replan(hybrid, ["ib/node0", "roce/node1"], Wishes(dp=4, **PINS))
    assert found.plan.config.world_size == 16
    assert {host.name for host in hosts.of_plan(found.plan)} == {"ib-node1", "roce-node0"}
    assert found.hosts == {"ib/node0": "ib-node1", "roce/node0": "roce-node0"}
    assert found.promise.step_s == pytest.approx(simulate(found.plan).step_s)
    assert planfile.from_text("again", planfile.to_json(found.plan)) == found.plan
    assert found.moves.ranks == 16
    assert repr(found).startswith("without ib/node0, roce/node1: step ")


def test_no_rank_moves_if_that_is_requested(hybrid: Plan) -> None:
    """Half of each stage is lost: dp 8 becomes dp 4 with twice the microbatches, on the hosts that are left."""
    found = hs.replan(hybrid, ["ib/node0", "roce/node1"], stay=True)
    assert (found.moves.moving, found.moves.staying, found.moves.nbytes) == (0, 16, 0.0)
    assert found.plan.stages == hybrid.stages
    assert found.plan.config.num_microbatches == (48,) * 4
    assert {host.name for host in hosts.of_plan(found.plan)} == {"ib-node1", "roce-node0"}
    assert found.promise.step_s == pytest.approx(simulate(found.plan).step_s)


def test_one_lost_node_needs_no_list(hybrid: Plan) -> None:
    assert hs.replan(hybrid, "ib/node0", stay=True) == hs.replan(hybrid, ["ib/node0"], stay=True)


def test_as_many_replicas_as_the_shortest_stage_has(hybrid: Plan) -> None:
    """One node of four: its stage keeps 4 replicas, so that those of the other stage's second node are idle."""
    found = hs.replan(hybrid, ["roce/node0"], stay=True)
    assert found.plan.config.dp == 4
    assert list(found.hosts.values()) == ["ib-node0", "ib-node1", "roce-node1"]
    assert {host.name for host in hosts.of_plan(found.plan)} == {"ib-node0", "roce-node1"}


def test_a_lost_stage_cannot_stay(hybrid: Plan) -> None:
    with pytest.raises(hs.Infeasible, match=r"remedy: leaving out --stay$"):
        hs.replan(hybrid, ["roce/node0", "roce/node1"], stay=True)


def test_staying_is_taken_where_it_is_as_fast(hybrid: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a strategy that is quick."""
    lost, plan = ["ib/node1", "roce/node1"], hybrid.annotated(made_by=MadeBy("megatron", "1"))
    alone = hs.replan(plan, lost, stay=True).promise.step_s
    found = hs.replan(plan, lost)
    assert found.plan.made_by.strategy == "megatron"
    assert found.searched is not None
    assert found.stayed is not None
    assert (found.plan is found.stayed) == (alone <= 1.001 * found.searched.prediction.step_s)
    monkeypatch.setattr(replanning, "EQUAL", 1e9)
    assert hs.replan(plan, lost).moves.moving == 0


def test_the_search_begins_with_the_plan_in_which_no_rank_moves(hybrid: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless dimensions are pinned, which that plan may not have."""
    lost, starts = ["ib/node0", "roce/node1"], list[Plan | None]()
    alone = hs.replan(hybrid, lost, stay=True).plan

    def searched(objective: str, request: object, strategy: str, context: PlanningContext) -> tuple[Plan, tuple[()]]:
        starts.append(context.start)
        return alone, ()

    monkeypatch.setattr(replanning.api, "plan_for", searched)
    assert hs.replan(hybrid, lost).plan == alone
    hs.replan(hybrid, lost, Wishes(dp=4, **PINS))
    assert starts == [alone, None]


def test_the_command_writes_the_plan_and_prints_what_moves(run: Make, written: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.json"
    pins = ("--tp", 2, "--pp", 2, "--dp", 4, "--microbatch-size", 4, "--recompute", "none", "--schedule", "1f1b")
    command = ("replan", written, "--lost", "ib-node0", "--lost", "roce/node1", *pins, "--time-limit", 5)
    seen = run(*command, "--json", "-o", new)
    assert seen.code == 0
    facts = json.loads(seen.out)
    assert facts["format"] == "holmes-sim/replan/1"
    assert facts["lost"] == ["ib/node0", "roce/node1"]
    assert facts["renumbered"] == {"ib/node1": "ib/node0"}
    assert facts["ranks"]["staying"] + facts["ranks"]["moving"] == facts["ranks"]["all"] == 16
    assert facts["step_s"]["after"] > facts["step_s"]["before"]
    assert facts["plan"]["placement"] == json.loads(new.read_text())["placement"]
    said = run(*command).out
    assert "ib/node1 is now ib/node0 (host ib-node1)." in said
    assert f"{facts['ranks']['moving']} of 16 ranks move" in said


def test_what_is_left_may_have_no_plan(run: Make, written: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.json"
    seen = run("replan", written, "--lost", "ib/node0", "--tp", 8, "--pp", 4, "--dp", 1, "-o", new)
    assert (seen.code, seen.out) == (3, "")
    assert "; remedy: " in seen.err
    assert not new.exists()


def test_a_node_that_is_not_there_is_wrong_input(run: Make, written: Path) -> None:
    seen = run("replan", written, "--lost", "ib/node2")
    assert (seen.code, seen.err) == (2, "error: --lost ib/node2: cluster ib has nodes 0 to 1 (hosts ib-node0 to ib-node1)\n")


@more
def test_a_plan_for_a_target_is_replanned_for_it(hybrid: Plan) -> None:
    """The plan for Megatron-LM has a schedule that it plays; without a target ZB-H2 is faster."""
    pins = {"tp": 2, "pp": 2, "microbatch_size": 4, "recompute": "none", "cp": 1}
    made = commands.plan(hybrid.topology, hybrid.workload, target="megatron", wishes=Wishes(dp=8, **pins)).plan
    assert made.certificate is not None and made.certificate.target == "megatron"
    fewer = Wishes(dp=4, **pins)
    again, free = (replan(one, "ib/node1", fewer).plan for one in (made, hybrid))
    assert again.config.schedule in ("1f1b", "interleaved")
    assert again.certificate is not None and again.certificate.target == "megatron"
    assert free.config.schedule == "zb-h2" and not any(exporters.unsupported("torchrun", free))
    other = replan(hybrid, "ib/node1", fewer, target="megatron").plan
    assert (other.config, other.stages) == (again.config, again.stages)


def test_a_layout_that_the_target_cannot_play_does_not_stay(hybrid: Plan) -> None:
    with pytest.raises(Infeasible, match=r"--stay: deepspeed cannot express .*; remedy: leaving out --stay"):
        replan(hybrid, "ib/node1", stay=True, target="deepspeed")


def test_targets_that_the_topology_requires_stay_required(hybrid: Plan) -> None:
    """Another target asked for comes in addition."""
    needing = replace(hybrid, topology=require(hybrid.topology, {"targets": ["megatron"]}))
    with pytest.raises(Infeasible, match=r"--stay: megatron and deepspeed cannot express .*; remedy: leaving out --stay"):
        replan(needing, "ib/node1", stay=True, target="deepspeed")


def test_ranks_that_a_limit_forbids_do_not_stay(hybrid: Plan) -> None:
    needing = replace(hybrid, topology=require(hybrid.topology, {"dp": {"min": hybrid.config.dp}}))
    with pytest.raises(Infeasible, match=r"--stay: the plan has dp .*, which should be at least .*; remedy: "):
        replan(needing, "ib/node1", stay=True)


def test_days_do_not_limit_the_plan_after_a_loss(hybrid: Plan) -> None:
    late = replace(hybrid, topology=require(hybrid.topology, {"days": {"max": 1, "tokens": "9T"}}))
    assert hs.replan(late, ["ib/node0", "roce/node1"], stay=True).plan.config.world_size == 16
