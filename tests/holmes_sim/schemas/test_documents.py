"""Every document that a command prints or writes is valid by its schema. One maker for each: a command, or a function of facts.

The fixture `run` of the command line checks every other document that tests print."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from pydantic import ValidationError

import holmes_sim as hs
from holmes_sim import (
    calibration,
    checking,
    error_tables,
    expert_files,
    exporting,
    lists,
    measurement,
    memory_validation,
    own_runs,
    plans_beside,
    running,
    schemas,
    validation,
)  # fmt: skip
from holmes_sim.calibration import Calibration, Fit
from holmes_sim.cases import Case
from holmes_sim.changes import Change
from holmes_sim.describing.description import Description
from holmes_sim.expert_placement import ExpertsPlaced, place_experts
from holmes_sim.front import Front
from holmes_sim.islands_leaving import without_island
from holmes_sim.launch_reading.job import Job
from holmes_sim.memory_validation import Outcomes
from holmes_sim.outcomes import Outcome
from holmes_sim.plan_numbers import PlanNumbers
from holmes_sim.pooled_fit import Common
from holmes_sim.profiling.ceilings import Ceilings
from holmes_sim.profiling.links import Link, LinkMeasurement, Point
from holmes_sim.profiling.machine import Machine
from holmes_sim.profiling.results import DeviceProfile, LinkProfile
from holmes_sim.proposals import Proposals, Proposed
from holmes_sim.results import Compared
from holmes_sim.running_disaggregated import MeasuredDisaggregated
from holmes_sim.running_islands import MeasuredIslands
from holmes_sim.runs import Run
from holmes_sim.scoring import Scored
from holmes_sim.torch_backend.islands.measured import MeasuredPeriods
from holmes_sim.verifying import Step, Verification
from holmes_sim.whatif import WhatIf
from holmes_sim.whole_runs import whole_run
from planner.api import Row
from planner.request import Request
from sim.formats import disaggregatedfile, islandsfile, pipelinesfile, planfile, topology
from sim.hardware.device_spec import AttentionRates, GemmCurve
from sim.hardware.stack import DEFAULT
from sim.plan.certificate import SpaceBound
from sim.plan.islands import IslandsPlan
from sim.plan.plan import Plan
from sim.results import breakdown
from sim.workload.expert_counts import ExpertCounts, LayerCounts
from sim.workload.kernels import Attention
from tests import two_rank_sets
from tests.holmes_sim.documents import conforms, validator
from tests.sim.formats.test_pipelinesfile import BY_HAND

SAMPLES = Path(__file__).parents[1] / "importers" / "samples"
FIXED: Any = {"tp": 1, "pp": 2, "dp": 2, "microbatch_size": 1, "schedule": "1f1b", "recompute": "none"}
"""Degrees that leave one layout."""
PINS = tuple(word for key, value in FIXED.items() for word in (f"--{key.replace('_', '-')}", value))
Documents = Iterable[Any]
Made = Callable[[Plan, Callable[..., Any]], Documents]


@pytest.fixture(scope="module")
def plan() -> Plan:
    """A plan of four ranks on two clusters."""
    return hs.plan(hs.load("lab/lab-hybrid-nics"), strategy="megatron", **FIXED).plan


def improvements(run: Callable[..., Any]) -> Documents:
    *lines, last = map(json.loads, run("plan", "lab/lab-hybrid-nics", *PINS, "--json-lines").out.splitlines())
    assert (lines != [], conforms(last)) == (True, "plan")
    return lines


def explained(run: Callable[..., Any]) -> Documents:
    document = json.loads(run("plan", "lab/lab-hybrid-nics", *PINS, "--explain", "--json", "--set", "require.tp=1").out)
    assert document["verdicts"][0]["estimated_step_s"] > 0
    assert document["requirements"][0]["requirement"] == "tp 1"
    return (document,)


def reports(plan: Plan) -> Documents:
    found = hs.simulate(plan)
    return found.facts(), found.facts() | {"explanation": hs.explain(found).facts()}, hs.simulate(bare(plan)).facts()


def bare(plan: Plan) -> Plan:
    """The plan without a prediction."""
    return replace(plan, prediction=None)


def troubles(plan: Plan) -> Documents:
    every = hs.trouble(plan, stragglers="10%:1.5", jitter="3%", degrade="10%:50%", flaps="1h:1s", seeds=[0, 1])
    return every.facts(), hs.trouble(plan, jitter="1%", seeds=[0]).facts()


def measured(plan: Plan) -> Any:
    timeline = replace(hs.simulate(plan).timeline, origin="measured", steps_s=(1.0, 1.1), compute="paced", computed_on=("cpu",))
    return measurement.measured_step(plan, hs.simulate(plan).timeline, timeline, "timeline.json")


def changes(plan: Plan) -> Documents:
    node = Outcome(Change("a node", (("clusters.ib.nodes", 3),)), PlanNumbers(1.0, 32_768.0, 0.05), 1.0, 4.0, "planned")
    none = Outcome(Change("no link", (("links", None),)), None, None, None, "planned", "it does not fit")
    numbers = PlanNumbers(1.0, 32_768.0, 0.05, "co2 8", 8, "bounded", None)
    unknown = Outcome(Change("islands", ()), numbers, None, None, "simulated")
    return (WhatIf(plan, (node, none, unknown), 1.0).facts(),)


def swept(plan: Plan) -> Documents:
    pins = {"tp": 1, "microbatch_size": 1, "recompute": "none", "schedule": "1f1b", "strategy": "megatron"}
    with patch("joblib.cpu_count", return_value=1):
        return (hs.sweep(plan.topology, {"plan.pp": [2, 3]}, plan=pins).facts(),)


def shortlists(plan: Plan) -> Documents:
    listed = Proposed(plan, 0.5, 1.0, (0.9, 1.1), "the fastest")
    return (Proposals("megatron", (listed,), 4, 0, plan, 1.0, "").facts(),)


def scores(plan: Plan) -> Documents:
    job = Job("megatron", plan.workload.model, 32, 1024, "fp16", not_modelled=("--an-option",), assumed=("bf16",))
    today = hs.simulate(bare(plan))
    best = hs.plan(plan.topology, strategy="megatron", **FIXED)
    return (
        Scored(job, today, hs.explain(today), best).facts(), Scored(job, today, hs.explain(today), None, "no time").facts()
    )  # fmt: skip


def goodputs(plan: Plan) -> Documents:
    found = hs.goodput(plan, checkpoint="60s", restart="10min", days=1, seeds=range(2))
    return found.facts(), found.facts() | {"whole_run": whole_run(plan, "1B", found.run).facts()}


@functools.cache
def mixture() -> ExpertsPlaced:
    """Experts of a small mixture, with replicas."""
    from tests.holmes_sim.test_expert_placement import OWN, plan

    return place_experts(plan(), ExpertCounts("by hand", (LayerCounts(None, OWN),)), replicas=16, time_limit=2.0)


@functools.cache
def islands() -> IslandsPlan:
    """The two sites of the lab as islands."""
    found = hs.plan_islands(hs.load("lab/lab-slow-trunk"), sync="diloco=30,int8", tp=1, pp=1, microbatch_size=1).plan
    assert isinstance(found, IslandsPlan)
    return found


def islands_goodputs() -> Documents:
    found = hs.goodput_islands(islands(), "60s", "10min").facts()
    elastic = hs.goodput_islands(islands(), "60s", "10min", leave=("island:100h:2h",), days=1.0, seeds=range(2)).facts()
    return found, elastic, found | {"whole_run": hs.whole_run_islands(islands(), "1B").facts()}


def islands_fronts() -> Documents:
    where = hs.load("lab/lab-slow-trunk")
    return (hs.pareto_islands(where, sync="diloco<=4,int8", tp=1, pp=1, microbatch_size=1, time_limit=2.0).facts(),)


def pipelines() -> Documents:
    plan = pipelinesfile.from_text("plan.yaml", BY_HAND)
    found = plan.annotated(hs.simulate_pipelines(plan).prediction, SpaceBound(2.0, 1.5, "all plans"))
    return pipelinesfile.facts(plan), pipelinesfile.facts(found)


def islands_report() -> Any:
    return hs.simulate_islands(islands()).facts()


def trouble() -> Any:
    found = hs.trouble_islands(islands(), degrade="50%:50%", seeds=[0, 1])
    return {"trouble": found.facts(), "leave": without_island(islands(), "1@20s").facts()}


def trunk(run: Callable[..., Any]) -> Any:
    words = ("--bandwidths", "1 Gbit/s, 10 Gbit/s", "--sync", "diloco=30,int8", "--sync", "every-step,none", "--time-limit", 2)
    return json.loads(run("trunk", "lab/lab-slow-trunk", *words, "--json").out)


CORES = {"cores": {"busy": 0.5, "stolen": 0.0, "valid": True}}
FIT = Fit("mine", True, ("gemm", "step"), DEFAULT, ("a", "b"), (), 0.2, 0.1, 0.15)


def validations(plan: Plan) -> Documents:
    ran = Case("a", "papers", "mine", 2.0, plan, measured_bytes=1e9, outcome="ran")
    left = Case("b", "papers", "mine", 3.0, None, reason="no such device")
    rows = (validation.Row(ran, 1.9, "default", False), validation.Row(left, None, "default", False))
    held_out = {"held_out_coverage": {"default": 0.78, "fitted": 0.77}}
    found = validation.facts(rows) | held_out | {"by": error_tables.facts(rows, ("tp", "device"))}
    return found | memory_validation.facts((ran, left)), validation.facts(rows[1:]) | held_out | {
        "outcomes": Outcomes(0, 0, 0, 0, 1).facts()
    }


def verification(hosts: int, link: bool) -> Any:
    top = Ceilings(
        "bf16", 743.7e12, 2.955e12, 55e9, GemmCurve(2.406e-6, 1.0, 1.0), 0.21, AttentionRates(0.9, 0.82, 556.0, 1203.0),
        Attention("attention", 1, 32, 32, 128, 16384), 0.863, (), 0.006,
    )  # fmt: skip
    device = DeviceProfile("h100", Machine("cuda", "NVIDIA H100", "nvidia", 132, 8e10), "torch 2.11.0", "2026-11-26", top)
    fitted = Link(1e-6, 1e-6, {"all_reduce": 1e11, "all_gather": 9e10}, 0.02, True)
    points = (Point("all_reduce", 2, 1e6, 1e-4),)
    joined = LinkProfile("link", fitted, (LinkMeasurement("probe", points, hosts, ("NVIDIA H100",)),)) if link else None
    step = Step("verify-0.4b", 1, "tp 1 pp 1 dp 1", 0.306, None, 0.311, 0.05)
    return Verification(device, 1, "", (step,), joined, "", ()).facts()


def measured_disaggregated() -> MeasuredDisaggregated:
    plan = two_rank_sets.plan()
    simulated = hs.simulate_disaggregated(plan)
    timeline = replace(simulated.timeline, origin="measured", steps_s=(1.0, 1.1), compute="paced", scale=2.0)
    return MeasuredDisaggregated(plan, simulated.prediction, timeline)


def islands_runs() -> Documents:
    plan = islands()
    assert plan.prediction is not None
    measured = MeasuredPeriods((2.0, 2.1), (0.5, 0.5), 0.4, 0.1, (2.5, 2.4), 20.0, "paced", ())
    facts = MeasuredIslands(plan, plan.prediction, measured).facts()
    return facts, facts | {"notes": ["no InfiniBand"]} | CORES


MAKERS: dict[str, Made] = {
    "breakdown": lambda plan, run: (breakdown.facts(hs.simulate(plan).timeline),),
    "calibration": lambda plan, run: (
        calibration.facts(Calibration((FIT,), Common(DEFAULT, 0.2, 0.1, 0.15))), calibration.facts(Calibration((FIT,), None))
    ),
    "check": lambda plan, run: (checking.check("lab/lab-hybrid-nics").facts(), checking.check("holmes-hybrid-4").facts()),
    "comparison": lambda plan, run: (
        Compared(Request(plan.topology, plan.workload), ("a", "b"), (Row("a", None, "a: no memory"), Row("b", plan))).facts(),
    ),
    "expert-placement": lambda plan, run: (expert_files.holmes(mixture()),),
    "expert-placements": lambda plan, run: (mixture().facts(),),
    "explained-plan": lambda plan, run: explained(run),
    "export": lambda plan, run: (exporting.facts(exporting.export(plan, "torchrun"), "torchrun", "launch"),),
    "goodput": lambda plan, run: goodputs(plan),
    "import": lambda plan, run: (json.loads(run("import", SAMPLES / "nccl_topology-rtx-3090.xml", "--json").out),),
    "improvement": lambda plan, run: improvements(run),
    "init": lambda plan, run: (Description(plan.topology.facts(), {}, ("a",), ("b",)).facts(),),
    "disaggregated": lambda plan, run: (disaggregatedfile.facts(two_rank_sets.plan()),),
    "disaggregated-run": lambda plan, run: (measured_disaggregated().facts(),),
    "disaggregated-report": lambda plan, run: (hs.simulate_disaggregated(two_rank_sets.plan()).facts(),),
    "islands": lambda plan, run: (islandsfile.facts(islands()),),
    "islands-pareto": lambda plan, run: islands_fronts(),
    "islands-goodput": lambda plan, run: islands_goodputs(),
    "islands-report": lambda plan, run: (islands_report(), islands_report() | trouble()),
    "islands-run": lambda plan, run: islands_runs(),
    "list": lambda plan, run: [lists.facts(kind) for kind in lists.KINDS],
    "measured-steps": lambda plan, run: (measurement.facts((measured(plan), measured(bare(plan)))),),
    "own-calibration": lambda plan, run: (own_runs.facts(FIT, (Run("1", plan, 2.0), Run("2", plan, None, True))),),
    "pareto": lambda plan, run: (Front(Request(plan.topology, plan.workload), ("step-time", "cost"), (plan,), ()).facts(),),
    "pipelines": lambda plan, run: pipelines(),
    "plan": lambda plan, run: (planfile.facts(plan), planfile.facts(bare(plan))),
    "plans-beside": lambda plan, run: (
        plans_beside.compare_plans({"plan.json": plan, "two.json": two_rank_sets.plan()}).facts(),
    ),
    "profile-result": lambda plan, run: (
        verification(1, True)["measured"], verification(2, True)["measured"], verification(1, False)["measured"]
    ),
    "replan": lambda plan, run: (hs.replan(plan, [f"{plan.fleet.clusters[0].name}/node0"], stay=True).facts(),),
    "report": lambda plan, run: reports(plan),
    "run": lambda plan, run: (
        running.facts(measured(plan)), running.facts(measured(bare(plan))) | {"notes": ["no InfiniBand"]} | CORES
    ),
    "score": lambda plan, run: scores(plan),
    "shortlist": lambda plan, run: shortlists(plan),
    "sweep": lambda plan, run: swept(plan),
    "topology": lambda plan, run: (topology.written(plan.topology), plan.topology.facts()),
    "trouble": lambda plan, run: troubles(plan),
    "trunk": lambda plan, run: (trunk(run),),
    "validation": lambda plan, run: validations(plan),
    "verification": lambda plan, run: (verification(1, True), verification(1, False)),
    "what-if": lambda plan, run: changes(plan),
}  # fmt: skip
"""Name of a schema -> its documents, from a plan and the command line."""


@pytest.mark.parametrize("name", [entry.NAME for entry in schemas.results()])
def test_a_document_is_valid_by_its_schema(name: str, plan: Plan, run: Callable[..., Any]) -> None:
    documents = list(MAKERS[name](plan, run))
    assert [conforms(document) for document in documents] == [name] * len(documents) != []


def test_unknown_keys_are_refused(plan: Plan) -> None:
    document = hs.simulate(plan).facts() | {"extra": 1}
    with pytest.raises(ValidationError, match="extra"):
        schemas.REGISTRY.get("report").MODEL.model_validate(document)
    assert not validator("report").is_valid(document)
    assert not validator("report").is_valid({"format": "holmes-sim/report/1"})


def test_result_accepts_documents_of_all_formats(plan: Plan) -> None:
    for document in (planfile.facts(plan), lists.facts("stacks")):
        validator(schemas.RESULT).validate(json.loads(json.dumps(document)))
    assert not validator(schemas.RESULT).is_valid({"format": "holmes-sim/none/1"})
