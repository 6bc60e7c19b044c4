"""A loop with reality: plan --shortlist, measured steps, calibrate --runs, plan --stack; and a second list."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from holmes_sim import cli, commands

PINS = ("--tp", "2", "--pp", "2", "--dp", "8", "--schedule", "1f1b", "--recompute", "none", "--zero-stage", "1")
"""Pins that leave three layouts: microbatch sizes 1, 2 and 4."""
TOPO = ("plan", "holmes-infiniband-4", "--global-batch-size", "96", *PINS)


pytestmark = pytest.mark.usefixtures("in_one_process")


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    """A folder of three plans to measure, written by the command line."""
    folder = tmp_path_factory.mktemp("shortlist") / "runs"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["holmes-sim", *TOPO, "--shortlist", "3", "-o", str(folder)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
    assert not stop.value.code
    return folder


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    """A copy of it, to write measurements into."""
    return Path(shutil.copytree(written, tmp_path / "runs"))


def test_each_plan_has_a_launch_and_says_how_to_measure_it(written: Path) -> None:
    assert sorted(path.name for path in written.iterdir()) == ["1", "2", "3", "README.md"]
    plans = [commands.read_plan(written / name / "plan.json") for name in "123"]
    assert sorted(plan.config.microbatch_size for plan in plans) == [1, 2, 4]
    assert {(plan.config.tp, plan.config.pp, plan.config.schedule) for plan in plans} == {(2, 2, "1f1b")}
    steps = [plan.prediction.step_s for plan in plans if plan.prediction]
    assert steps[0] == min(steps)
    for name in "123":
        assert (written / name / "megatron.args").is_file()
        text = (written / name / "README.md").read_text(encoding="utf-8")
        assert "## Measure" in text and "measured.yaml" in text and "step_s: 4.9" in text


def test_the_readme_lists_the_plans_and_the_next_commands(written: Path) -> None:
    text = (written / "README.md").read_text(encoding="utf-8")
    assert text.count("\n| ") == 5, "a head, a rule and three plans"
    assert "least expected step" in text
    assert f"holmes-sim calibrate --runs {written} -o mine.yaml" in text
    assert f"holmes-sim plan holmes-infiniband-4 --global-batch-size 96 {' '.join(PINS)} --stack mine.yaml" in text


def test_measured_steps_become_a_stack_to_plan_with(run, folder: Path, tmp_path: Path) -> None:
    plan = commands.read_plan(folder / "1" / "plan.json")
    assert plan.prediction is not None
    took = 1.3 * plan.prediction.step_s
    (folder / "1" / "measured.yaml").write_text(f"step_s: {took}\n", encoding="utf-8")
    (folder / "2" / "measured.yaml").write_text("outcome: failed\n", encoding="utf-8")
    mine = tmp_path / "mine.yaml"
    seen = run("calibrate", "--runs", folder, "-o", mine)
    assert seen.code == 0
    assert f"Written to {mine}." in seen.err
    assert "measured.yaml" in seen.out and "failed for want of memory" in seen.out and "not measured" in seen.out
    again = json.loads(run(*TOPO, "--microbatch-size", plan.config.microbatch_size, "--stack", mine, "--json").out)
    assert again["prediction"]["step_s"] == pytest.approx(took, rel=0.05)


def test_calibrate_prints_one_document(run, folder: Path) -> None:
    (folder / "3" / "measured.yaml").write_text("step_s: 20\n", encoding="utf-8")
    seen = run("calibrate", "--runs", folder, "--json")
    document = json.loads(seen.out)
    assert (seen.code, seen.err) == (0, "")
    assert document["stack"]["format"] == "holmes-sim/stack/1"
    assert [(one["outcome"], one["step_s"]) for one in document["runs"]] == [
        ("not measured", None),
        ("not measured", None),
        ("ran", 20.0),
    ]


def test_a_second_list_has_other_plans(run, folder: Path, tmp_path: Path) -> None:
    """The first plan failed and the second one took ten times as long as predicted; a third layout is expected to be best."""
    predicted = commands.read_plan(folder / "2" / "plan.json").prediction.step_s
    (folder / "1" / "measured.yaml").write_text("outcome: failed\n", encoding="utf-8")
    (folder / "2" / "measured.yaml").write_text(f"step_s: {10 * predicted}\n", encoding="utf-8")
    seen = run(*TOPO, "--shortlist", "1", "--runs", folder, "-o", tmp_path / "more", "--json")
    document = json.loads(seen.out)
    (one,) = document["plans"]
    assert document["measured"] == 1
    assert one["config"]["microbatch_size"] == commands.read_plan(folder / "3" / "plan.json").config.microbatch_size
    assert document["best"]["folder"] == ""
    text = (tmp_path / "more" / "README.md").read_text(encoding="utf-8")
    assert f"holmes-sim calibrate --runs {folder} --runs {tmp_path / 'more'} -o mine.yaml" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*TOPO, "--shortlist", "2"), "--shortlist writes a folder for each plan; give the folder with -o FOLDER"),
        ((*TOPO, "--runs", "runs"), "--runs needs --shortlist; holmes-sim calibrate --runs FOLDER fits a stack for --stack"),
        ((*TOPO, "--shortlist", "2", "--pareto", "-o", "new"), "--shortlist uses strategy certified and the step time"),
        ((*TOPO, "--shortlist", "2", "--to", "megatorn", "-o", "new"), "target 'megatorn' is unknown"),
        ((*TOPO, "--shortlist", "2", "-o", "pyproject.toml"), "pyproject.toml: exists and is not empty; name a new folder"),
        ((*TOPO, "--shortlist", "2", "--runs", "nowhere", "-o", "new"), "nowhere: no such folder"),
        (("calibrate", "--runs", "nowhere"), "nowhere: no such folder"),
        (("calibrate", "--runs", "nowhere", "--cases", "x.yaml"), "give either --cases"),
        (("calibrate", "--stack", "nemo-25.11"), "--stack, the stack to start from, needs --runs"),
    ],
)
def test_wrong_input_is_one_line(run, arguments: tuple[str, ...], message: str) -> None:
    seen = run(*arguments)
    assert (seen.code, seen.out) == (2, "")
    assert seen.err.startswith(f"error: {message}")
    assert len(seen.err.splitlines()) == 1


def test_runs_of_another_workload_are_refused(run, folder: Path, tmp_path: Path) -> None:
    (folder / "1" / "measured.yaml").write_text("step_s: 20\n", encoding="utf-8")
    seen = run(*TOPO, "--global-batch-size", "64", "--shortlist", "1", "--runs", folder, "-o", tmp_path / "more")
    assert seen.code == 2
    assert seen.err.startswith(f"error: {folder / '1'}: its plan trains another workload than this topology's")
