"""Plans of all kinds beside each other: their rows, what they do not have in common, and the command."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from holmes_sim import intervals, unlike_pipelines
from holmes_sim.guesses import guessed_rates
from holmes_sim.plans_beside import PlansBeside, SimulatedPlan, compare_plans, read_plans
from holmes_sim.printing.plans_beside import plans_compared
from planner.placement.ranks import build
from planner.placement.simulation import simulate_plan
from sim.engine.engine import simulate
from sim.formats import disaggregatedfile, pipelinesfile, planfile
from sim.plan.pipelines import PipelinesPlan
from sim.plan.plan import Plan
from sim.results.report import predict
from tests import two_rank_sets
from tests.planner.builders import shape
from tests.planner.pipelines.drawn import drawn

EXAMPLE = Path(__file__).parents[2] / "examples" / "unlike_pipelines.yaml"


@pytest.fixture(scope="module")
def unlike() -> PipelinesPlan:
    """Two unlike pipelines or more of a drawn fleet, with a prediction."""
    _, plan = next(one for one in map(drawn, range(100)) if one[1] is not None)
    assert plan is not None
    return plan.annotated(predict(plan, simulate(plan)))


@pytest.fixture(scope="module")
def alike() -> Plan:
    """One replica of one stage on the same fleet."""
    asked, _ = next(one for one in map(drawn, range(100)) if one[1] is not None)
    return simulate_plan(build(asked, shape(1, 1), (("a", 3),), "by hand"))


@pytest.fixture(scope="module")
def answer(alike: Plan, unlike: PipelinesPlan) -> PlansBeside:
    return compare_plans({"alike.json": alike, "unlike.json": unlike})


def row(answer: PlansBeside, name: str) -> SimulatedPlan:
    return next(one for one in answer.rows if one.name == name)


def test_a_new_simulation_gives_what_the_files_predict(answer, alike, unlike):
    assert [one.prediction.step_s for one in answer.rows] == sorted(
        [alike.prediction.step_s, unlike.prediction.step_s]
    )  # both have one batch
    assert [one.predicted_s for one in answer.rows] == pytest.approx([one.prediction.step_s for one in answer.rows])
    assert answer.unlike == ()


def test_the_fastest_plan_is_first_and_others_are_slower(answer):
    first, second = answer.rows
    assert answer.slower(first) == 0
    assert answer.slower(second) == pytest.approx(second.prediction.step_s / first.prediction.step_s - 1)
    assert answer.is_close(second) == (answer.slower(second) < answer.least_ratio - 1)
    assert not answer.is_close(first)


def test_rows_have_the_range_of_one_node_or_of_several(answer, alike):
    """On one device 0.88 to 1.10 times the predicted step (docs/accuracy.md), in the table and as plain data."""
    step = row(answer, "alike.json").prediction.step_s
    low, high = intervals.ratios(False, False)
    facts = next(one for one in answer.facts()["rows"] if one["name"] == "alike.json")
    assert facts["step_range_s"] == pytest.approx([low * step, high * step])
    assert facts["guessed_rates"] == list(guessed_rates(alike))
    text = io.StringIO()
    Console(file=text, width=200).print(plans_compared(answer))
    assert "80 % range" in text.getvalue()
    assert intervals.step_range(step, alike).text.replace(" to ", "-") in text.getvalue()


def test_rows_have_kind_devices_and_digest(answer, alike, unlike):
    one, several = row(answer, "alike.json"), row(answer, "unlike.json")
    assert (one.kind.name, one.devices, one.kind.digest(one.plan)) == ("alike replicas", 1, planfile.digest(alike))
    assert (several.kind.name, several.devices) == ("unlike pipelines", len(unlike.placement))
    assert several.kind.digest(several.plan) == pipelinesfile.digest(unlike)
    assert several.pipelines == unlike.pipelines
    configs = {one["name"]: one["configs"] for one in answer.facts()["rows"]}
    assert len(configs["unlike.json"]) == len(unlike.pipelines)
    assert sum(configs["alike.json"][0]["num_microbatches"]) == alike.workload.global_batch_size


def test_plans_of_unlike_fleets_batches_and_models_are_told(answer, alike):
    other = two_rank_sets.plan()
    found = compare_plans({"alike.json": alike, "split.json": other})
    assert found.unlike == ("fleets", "models or sequences") + (
        ("batches",) if other.workload.global_batch_size != alike.workload.global_batch_size else ()
    )
    split = row(found, "split.json")
    assert (split.kind.name, split.pipelines, split.kind.digest(split.plan)) == (
        "attention and experts apart", (), disaggregatedfile.digest(other),
    )  # fmt: skip


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """A plan of unlike pipelines as YAML, one whose pipelines are exchanged, and one with two sets of ranks."""
    known = unlike_pipelines.read_pipelines(EXAMPLE)
    texts = {
        "unlike.yaml": EXAMPLE.read_text(encoding="utf-8"),
        "exchanged.json": pipelinesfile.to_json(replace(known, pipelines=known.pipelines[::-1])),
        "split.json": disaggregatedfile.to_json(two_rank_sets.plan()),
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return [tmp_path / name for name in texts]


def test_only_several_plans_are_read(files, tmp_path):
    names = [str(path) for path in files]
    assert list(read_plans(names)) == names
    assert read_plans(names[:1]) == {}
    assert read_plans([*names[:1], "holmes-hybrid-4"]) == {}


def test_compare_prints_a_row_for_each_plan(run, files, monkeypatch):
    monkeypatch.chdir(files[0].parent)
    seen = run("compare", "unlike.yaml", "exchanged.json", "split.json")
    assert (seen.code, seen.err) == (0, "")
    lines = [line.split() for line in seen.out.splitlines()]
    steps = {line[0]: line[1:3] for line in lines if line and line[-1] in ("pipelines", "apart")}
    assert list(steps) == ["unlike.yaml", "exchanged.json", "split.json"]
    assert steps["unlike.yaml"] == steps["exchanged.json"] == ["39.92", "s"]
    assert sum("fastest" in line for line in lines[1:]) == 2, "both are one plan"
    assert "Warning: the plans have unlike fleets and models or sequences" in seen.out
    assert "split.json: attention on 2 devices of new" in seen.out
    document = json.loads(run("compare", "unlike.yaml", "exchanged.json", "--json").out)
    assert document["format"] == "holmes-sim/plans-beside/1"
    assert [one["kind"] for one in document["rows"]] == ["unlike pipelines"] * 2


def test_an_edited_prediction_does_not_count(alike):
    wrong = alike.annotated(prediction=replace(alike.prediction, step_s=1e9))
    found = row(compare_plans({"a": alike, "b": wrong}), "b")
    assert (found.predicted_s, found.prediction.step_s) == (1e9, pytest.approx(alike.prediction.step_s))
