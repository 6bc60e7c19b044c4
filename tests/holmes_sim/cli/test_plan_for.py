"""plan --for TARGET and compare --for: plans that a launch target can run."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import pytest

from holmes_sim import commands, exporters, exporting
from planner.costs.context import PlanningContext
from planner.request import Request
from planner.strategies import certified
from sim.errors import Infeasible
from sim.formats.edits import edited
from tests.more import after, deep, more
from tests.planner.builders import NO_PROOF

LEFT_OUT = ("peers/", "hethub-768", "dgx-a100-128")
TOPOLOGIES = [
    name for name in commands.shipped_topologies() if not name.startswith(LEFT_OUT) and not name.endswith(("-6", "-8"))
]
"""Those of six and eight nodes are of the same kinds as those of four, and hundreds of devices are only more of them."""
BATCH = 32
"""A small batch has few sizes of microbatches, and one node of each cluster few layouts."""
LAW = [("mixed-h100-a100-v100", target) for target in exporters.frameworks()]
"""Every framework on a fleet with three kinds of devices."""
SECONDS = 1.0
FURTHER = [("holmes-hybrid-4", "kubernetes"), *zip(TOPOLOGIES, itertools.cycle(exporters.frameworks()), strict=False)]
"""A target that launches any program, and every topology with one framework."""


def check_exports(request: Request, target: str) -> None:
    """Plan for a target without a proof, within few seconds, and export; plans of a whole search are refused by the same check
    when they are built. Without a plan, the reason names the target."""
    asked = replace(request, time_limit=SECONDS, target=exporters.target(target))
    try:
        plan = certified.plan(asked, PlanningContext(asked), NO_PROOF)
    except Infeasible as error:
        assert str(error).startswith((f"{target} cannot express ", f"{target} cannot run a layout that fits"))
        return
    assert exporting.export(plan, target).files
    assert plan.certificate is not None
    assert ("target", (target,)) in [(axis.name, axis.values) for axis in plan.certificate.space]


@pytest.mark.parametrize(("topology", "target"), after(len(LAW), dict.fromkeys(LAW + FURTHER), last=len(LAW) + 5))
def test_a_plan_for_a_target_can_be_exported_to_it(topology, target):
    """Of one node of each cluster and a small batch."""
    where = commands.load(topology)
    where = edited(where, {f"clusters.{cluster.name}.nodes": 1 for cluster in where.fleet.clusters})
    check_exports(Request(where, replace(commands.workload_of(where), global_batch_size=BATCH)), target)


@deep
@pytest.mark.parametrize("topology", commands.shipped_topologies())
def test_plans_of_every_shipped_topology_can_be_exported(topology):
    """Each topology as it is, for each target; those of islands alone are asked for with `--sync`."""
    where = commands.load(topology)
    for target in exporters.names():
        check_exports(Request(where, commands.workload_of(where)), target)


def test_plan_says_what_it_is_for_and_what_can_run_it(run):
    seen = run("plan", "holmes-hybrid-4", "--for", "megatron", "--tp", "2", "--pp", "2", "--dp", "8", "--microbatch-size", "4")
    assert seen.code == 0
    assert "layouts that megatron can run." in seen.out
    assert "Runs with megatron" in seen.out


def test_an_unknown_target_is_named(run):
    seen = run("plan", "holmes-hybrid-4", "--for", "megatrn")
    assert (seen.code, seen.err) == (2, "error: target 'megatrn' is unknown; did you mean 'megatron'?\n")


def test_a_target_that_cannot_run_the_model_says_why_and_what_helps(run):
    seen = run("plan", "lab/lab-slow-trunk", "--for", "torchtitan")
    assert (seen.code, seen.out) == (3, "")
    why = "torchtitan cannot express mlp gelu: its models for text are gated; swiglu"
    assert seen.err == f"error: {why}; remedy: leaving out --for torchtitan\n"


@pytest.mark.parametrize(
    ("sync", "target", "why"),
    [
        (
            "any",
            "torchtitan",
            "torchtitan cannot express mlp gelu: its models for text are gated; swiglu; remedy: leaving out --for torchtitan",
        ),
        ("diloco=30", "megatron", "megatron launches no islands; torchrun, torchtitan, prime do"),
    ],
)
def test_islands_that_a_target_never_has_are_refused_before_the_search(run, monkeypatch, sync, target, why):
    monkeypatch.setattr("planner.islands.search._plans", None)
    seen = run("plan", "lab/lab-slow-trunk", "--sync", sync, "--for", target)
    assert (seen.code, seen.out, seen.err) == (3, "", f"error: no plan with --sync {sync}: {why}\n")


def test_a_pinned_schedule_that_the_target_lacks_is_refused(run):
    seen = run("plan", "holmes-hybrid-4", "--for", "megatron", "--schedule", "zb-h2")
    assert seen.code == 3
    assert seen.err.startswith("error: megatron cannot express schedule zb-h2: it supports 1F1B, plain or interleaved")


PINS = ("--tp", "2", "--pp", "2", "--dp", "8", "--microbatch-size", "4")


def test_compare_shows_what_each_target_costs(run):
    seen = run("compare", "holmes-hybrid-4", "--for", "megatron,torchtitan", *PINS, "--json")
    assert seen.code == 0
    rows = {row["name"]: row for row in json.loads(seen.out)["rows"]}
    assert list(rows) == ["none", "megatron", "torchtitan"]
    assert rows["none"]["slower_than_best"] == 0.0 < rows["megatron"]["slower_than_best"]
    versions = {"none": None, "megatron": "megatron-core 0.16.1 and 0.19.2", "torchtitan": "torchtitan 0.3.0 on torch 2.14"}
    assert {name: row["read_by"] for name, row in rows.items()} == versions
    assert rows["torchtitan"]["step_s"] is None and rows["torchtitan"]["reason_if_none"].startswith("torchtitan cannot express")


def test_compare_prints_targets(run):
    seen = run("compare", "holmes-hybrid-4", "--for", "megatron", *PINS)
    assert seen.code == 0
    assert "Targets, the fastest first" in seen.out and "target" in seen.out
    assert "Exports were read by: megatron (megatron-core 0.16.1 and 0.19.2)." in seen.out


def test_targets_and_strategies_are_not_compared_at_once(run):
    seen = run("compare", "holmes-hybrid-4", "--for", "all", "--strategies", "holmes")
    assert (seen.code, seen.err) == (2, "error: --for compares plans of strategy certified; leave out --strategies\n")


def test_a_shortlist_has_its_target_from_another_option(run, tmp_path):
    seen = run("plan", "holmes-hybrid-4", "--for", "megatron", "--shortlist", "2", "-o", tmp_path / "runs")
    assert (seen.code, seen.err) == (2, "error: --shortlist has its target from --to; leave out --for\n")


@more
def test_a_front_for_a_target_has_only_plans_that_it_runs(run):
    seen = run("plan", "lab/lab-mixed-devices", "--for", "megatron", "--pareto", "--recompute", "none", "--json")
    assert seen.code == 0
    schedules = {row["config"]["schedule"] for row in json.loads(seen.out)["rows"]}
    assert schedules <= {"1f1b", "interleaved"}
