"""Runs of plans: what the files of their folders say, and a stack fitted to them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from holmes_sim import calibration, cases, runs, validation
from sim.engine import timeline
from sim.engine.engine import simulate
from sim.errors import HolmesError, TimelineError, TopologyError
from sim.formats import planfile, stacks
from sim.hardware.stack import DEFAULT
from sim.plan.plan import Plan
from sim.plan.under_stack import with_stack

CASES = [
    case
    for case in cases.load(validation.folder() / "megatron_sc21.yaml")
    if case.stack == "megatron-2020" and "a100" in case.id
]
SLOW = replace(DEFAULT, gemm=0.75 * DEFAULT.gemm)


@pytest.fixture(scope="module")
def plan() -> Plan:
    assert CASES[0].plan is not None
    return CASES[0].plan


@pytest.fixture
def folder(tmp_path: Path, plan: Plan) -> Path:
    """A folder of two plans, none of them measured."""
    for name in ("1", "2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "plan.json").write_text(planfile.to_json(plan), encoding="utf-8")
    return tmp_path


def test_a_plan_without_measurement_is_named(folder: Path) -> None:
    (folder / "1" / "measured.yaml").write_text("step_s: 4.9\n", encoding="utf-8")
    one, two = runs.read([folder])
    assert (one.name, one.step_s, one.source) == (str(folder / "1"), 4.9, "measured.yaml")
    assert (two.step_s, two.failed) == (None, False)
    assert runs.measured((one, two)) == (one,)
    assert [found.facts()["outcome"] for found in (one, two)] == ["ran", "not measured"]


def test_a_run_that_lacked_memory_has_no_step(folder: Path) -> None:
    (folder / "1" / "measured.yaml").write_text("outcome: failed\n", encoding="utf-8")
    one = runs.read([folder])[0]
    assert (one.step_s, one.failed) == (None, True)


def test_no_measurement_at_all_is_an_error_that_says_where_to_write_one(folder: Path) -> None:
    with pytest.raises(
        HolmesError, match=r"no plan was measured; write what one took, such as `step_s: 4.9`, to .*1/measured.yaml"
    ):
        runs.measured(runs.read([folder]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("step_seconds: 4.9\n", r"measured.yaml:1: step_seconds: unknown key"),
        ("step_s: -1\n", r"measured.yaml:1: step_s: "),
        ("4.9\n", r"measured.yaml:1: a mapping of keys is expected here, not float"),
        ("outcome: ran\n", r"measured.yaml:1: outcome: ran; write the seconds of a step"),
    ],
)
def test_a_wrong_measurement_is_one_line(folder: Path, text: str, message: str) -> None:
    (folder / "1" / "measured.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(TopologyError, match=message):
        runs.read([folder])


def test_two_measurements_of_one_plan_are_refused(folder: Path) -> None:
    (folder / "1" / "measured.yaml").write_text("step_s: 4.9\n", encoding="utf-8")
    line = "iteration {0}/ 100 | elapsed time per iteration (ms): 4900.0 | | loss scale: 1.0 |\n"
    (folder / "1" / "run.log").write_text(line.format(10) + line.format(20), encoding="utf-8")
    with pytest.raises(HolmesError, match=r"1: measured.yaml and run.log both have a measurement; keep one"):
        runs.read([folder])


def test_a_measured_timeline_has_the_step_at_the_speed_of_the_real_machines(folder: Path, plan: Plan) -> None:
    """A lab that runs ten times slower took 49 seconds."""
    took = replace(simulate(plan), origin="measured", step_s=49.0, scale=10.0, plan_digest=planfile.digest(plan))
    (folder / "1" / "timeline.json").write_text(timeline.to_json(took), encoding="utf-8")
    one = runs.read([folder])[0]
    assert (one.step_s, one.source) == (pytest.approx(4.9), "timeline.json")


def test_a_timeline_that_says_nothing_about_the_plan_is_refused(folder: Path, plan: Plan) -> None:
    simulated = simulate(plan)
    path = folder / "1" / "timeline.json"
    path.write_text(timeline.to_json(simulated), encoding="utf-8")
    with pytest.raises(TimelineError, match=r"timeline.json: origin: simulated; a measured timeline is expected"):
        runs.read([folder])
    path.write_text(timeline.to_json(replace(simulated, origin="measured", plan_digest="0")), encoding="utf-8")
    with pytest.raises(TimelineError, match=r"timeline.json: plan_digest: '0' belongs to another plan"):
        runs.read([folder])


def test_a_folder_without_plans_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HolmesError, match=r"no folder inside has a plan.json"):
        runs.read([tmp_path])


def test_one_run_moves_the_stack_and_its_file_plans_with_it(plan: Plan, tmp_path: Path) -> None:
    """A run that a slower software made: the fit predicts it nearly, and the stack file has its constants."""
    step = simulate(with_stack(SLOW, plan)).step_s
    run = runs.Run("one", plan, step)
    fit = calibration.fit_runs("mine", runs.cases([run], "own"), DEFAULT)
    assert fit.default_error > 0.1
    assert fit.error < 0.3 * fit.default_error
    assert fit.honest_error == fit.default_error, "a single run cannot be held out"
    assert len(fit.numbers) == 4
    path = tmp_path / "mine.yaml"
    path.write_text(calibration.text(fit), encoding="utf-8")
    assert stacks.load(str(path)).stack() == fit.stack
    assert runs.predicted([run], fit.stack)[0] == pytest.approx(step, rel=fit.error + 1e-6)


def test_constants_of_the_stack_to_start_from_are_kept(plan: Plan, tmp_path: Path) -> None:
    """`update_bytes` is not fitted; the fit starts from it, so its file has it, too."""
    start = replace(DEFAULT, update_bytes=50.0, communication=0.5)
    run = runs.Run("one", plan, simulate(with_stack(start, plan)).step_s)
    fit = calibration.fit_runs("mine", runs.cases([run], "own"), start)
    assert fit.default_error == pytest.approx(0.0, abs=1e-6)
    path = tmp_path / "mine.yaml"
    path.write_text(calibration.text(fit), encoding="utf-8")
    assert stacks.load(str(path)).stack() == start


def test_a_stack_to_start_from_is_found_by_its_name() -> None:
    assert runs.start(None) == DEFAULT
    assert runs.start("megatron-2022").gemm == 1.01
    assert runs.start("nanotron-2025-pipeline").all_reduces


def test_facts_of_the_plans_are_kept_and_numbers_are_not(plan: Plan) -> None:
    mine = replace(DEFAULT, gemm=0.5, tp_overlap=True, fused_accumulation=True)
    topology = replace(plan.topology, stack=mine)
    with_facts = runs.Run("1", replace(plan, topology=topology))
    start = runs.start(None, [with_facts])
    assert start == replace(DEFAULT, tp_overlap=True, fused_accumulation=True)
    with pytest.raises(HolmesError, match="2: its plan has other facts of the stack than 1; name one with --stack"):
        runs.start(None, [with_facts, runs.Run("2", plan)])


def test_a_log_without_a_step_time_is_named(folder: Path) -> None:
    (folder / "2" / "run.log").write_text("nothing here\n")
    (folder / "1" / "measured.yaml").write_text("step_s: 4.9\n")
    assert [run.source for run in runs.read([folder])] == ["measured.yaml", "no step time in run.log"]


def test_each_run_is_held_out_in_turn(plan: Plan) -> None:
    other = CASES[1].plan
    assert other is not None
    found = [runs.Run(name, one, simulate(with_stack(SLOW, one)).step_s) for name, one in (("1", plan), ("2", other))]
    fit = calibration.fit_runs("mine", runs.cases(found, "own"), DEFAULT)
    assert [(one.axis, one.group) for one in fit.held_out] == [("run", "1"), ("run", "2")]
    assert fit.error < fit.honest_error < fit.default_error
