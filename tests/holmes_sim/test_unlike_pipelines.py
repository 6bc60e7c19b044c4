"""Plans of unlike pipelines from Python and on the command line: shown, simulated, traced, and refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import holmes_sim as hs
from holmes_sim import exporters, exporting
from sim.engine.timeline import from_json
from sim.errors import NotSupported, OptionError
from sim.formats import pipelinesfile
from sim.results.report import split
from sim.results.sums import seconds_by_rank
from tests.holmes_sim.documents import conforms
from tests.sim.formats.test_pipelinesfile import BY_HAND


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A plan of two unlike pipelines."""
    (tmp_path / "plan.yaml").write_text(BY_HAND)
    return tmp_path / "plan.yaml"


def test_show_prints_each_pipeline_and_who_sums_which_gradients(run, path):
    lines = run("show", path).out.splitlines()
    assert lines[0].endswith("batch 8 x 128 tokens fp16, 4 of 8 devices")
    assert [line for line in lines if line.startswith("Pipeline ")] == [
        "Pipeline 0, ranks 0 to 1: tp 1 | pp 2 | dp 1 | 3 microbatches of 1 | 1f1b | ZeRO 1 | recompute some layers   "
        "(strategy by hand)",
        "Pipeline 1, ranks 2 to 3: tp 2 | pp 1 | dp 1 | 5 microbatches of 1 | 1f1b | ZeRO 1 | recompute none   "
        "(strategy by hand)",
    ]
    summed = [line.split() for line in lines[lines.index("Gradients") + 2 :][:2]]
    assert summed == [
        ["embedding", "and", "0", "to", "2", "2", "2", "ethernet", "tcp", "ib", "+", "roce"],
        ["3", "and", "head", "2", "2", "ethernet", "tcp", "ib", "+", "roce"],
    ]


def test_simulate_writes_a_trace_and_a_report(run, path, tmp_path):
    done = run("simulate", path, "--trace", tmp_path / "timeline.json", "--json")
    document = json.loads(done.out)
    assert conforms(document) == "report"
    simulated = hs.simulate_pipelines(hs.read_pipelines(path))
    assert document["report"] == simulated.facts()["report"]
    timeline = from_json((tmp_path / "timeline.json").read_text(), "timeline.json")
    assert timeline.step_s == pytest.approx(simulated.timeline.step_s, rel=1e-9)


def test_every_second_of_a_rank_is_compute_exposed_or_bubble(path):
    found = hs.simulate_pipelines(hs.read_pipelines(path))
    sums = seconds_by_rank(found.timeline)
    for group in found.timeline.alike:
        assert sum(split(sums[group[0]])) == pytest.approx(found.timeline.step_s)
    assert [len(rows) for rows in found.pipeline_ranks] == [2, 1]
    assert found.prediction.samples_per_s == pytest.approx(8 / found.timeline.step_s)
    assert len(found.prediction.peak_memory_bytes) == 3
    assert 0 < found.prediction.upper_bound_fraction < 1


def test_a_prediction_that_is_not_confirmed_is_named(run, path, tmp_path):
    plan = hs.read_pipelines(path)
    found = hs.simulate_pipelines(plan)
    right, wrong = tmp_path / "right.json", tmp_path / "wrong.json"
    right.write_text(pipelinesfile.to_json(plan.annotated(found.prediction)))
    wrong.write_text(right.read_text().replace('"step_s": 0.0', '"step_s": 1.0'))
    assert "another version of holmes-sim" not in run("simulate", right).err
    assert "another version of holmes-sim" in run("simulate", wrong).err
    assert hs.simulate_pipelines(hs.read_pipelines(right)).confirmed


def test_steps_with_slow_devices_and_jitter(run, path, tmp_path):
    """A device that computes twice as long makes the step longer: of the pipeline with most work by nearly as much."""
    done = run(
        "simulate", path, "--stragglers", "30%:2", "--jitter", "3%", "--seeds", "6", "--trace", tmp_path / "slow.json", "--json"
    )
    document = json.loads(done.out)
    assert conforms(document) == "trouble"
    alone = hs.simulate_pipelines(hs.read_pipelines(path)).timeline.step_s
    assert document["step_s"]["fault_free"] == pytest.approx(alone)
    assert 1.5 * alone < document["step_s"]["slowest"] < 2.2 * alone
    assert run("simulate", path, "--degrade", "50%:50%", "--seeds", "3").code == 0


def test_a_step_is_explained_by_pipeline_and_stage(run, path):
    document = json.loads(run("simulate", path, "--explain", "--json").out)
    assert conforms(document) == "report"
    explanation = document["explanation"]
    assert [(one["pipeline"], one["stage"], one["rank"], one["ranks"]) for one in explanation["ranks"]] == [
        (0, 0, 0, 1), (0, 1, 1, 1), (1, 0, 2, 2),
    ]  # fmt: skip
    for one in explanation["ranks"]:
        assert sum(one["seconds"].values()) == pytest.approx(explanation["step_s"])
    assert sum(sum(one["seconds"].values()) for one in explanation["critical_path"]) == pytest.approx(explanation["step_s"])
    assert explanation["chain"][-1]["what"].startswith("pipeline ")
    lines = run("simulate", path, "--explain").out.splitlines()
    assert [line.split()[:3] for line in lines if line.lstrip().startswith("pipeline 0: ")][:2] == [
        ["pipeline", "0:", "0"], ["pipeline", "0:", "1"],
    ]  # fmt: skip


def test_step_and_placement_are_drawn(run, path, tmp_path):
    assert run("simulate", path, "--chart", tmp_path / "step.svg").code == 0
    step = (tmp_path / "step.svg").read_text()
    assert "pipeline 0 · stage 1 · ib (rank 1)" in step
    assert "pipeline 1 · stage 0 · roce · tp 2 (ranks 2-3)" in step
    assert "2 unlike pipelines · 1f1b" in step
    assert run("show", path, "-o", tmp_path / "plan.svg").code == 0
    placed = (tmp_path / "plan.svg").read_text()
    assert "2: pipeline 1, stage 0: layers 0-3" in placed
    assert "idle: 4 devices" in placed


def test_a_timeline_is_compared_with_its_plan(run, path, tmp_path):
    plan = hs.read_pipelines(path)
    (tmp_path / "plan.json").write_text(pipelinesfile.to_json(plan))
    assert run("simulate", path, "--trace", tmp_path / "timeline.json").code == 0
    done = run("compare", tmp_path / "plan.json", tmp_path / "timeline.json", "--chart", tmp_path / "both.svg", "--json")
    (found,) = json.loads(done.out)["rows"]
    assert found["step"]["error"] == pytest.approx(0.0, abs=1e-9)
    assert "pipeline 1 · stage 0" in (tmp_path / "both.svg").read_text()
    assert "--profile" in run("compare", tmp_path / "plan.json", tmp_path / "timeline.json", "--profile", "none").err


def test_the_report_has_each_pipeline_and_the_numbers_of_the_step(run, path, tmp_path):
    assert run("report", path, "-o", tmp_path / "plan.html").code == 0
    page = (tmp_path / "plan.html").read_text()
    assert page == hs.report(hs.read_pipelines(path))
    found = hs.simulate_pipelines(hs.read_pipelines(path))
    assert f'<data value="{found.prediction.step_s!r}" data-of="report/step_s">' in page
    assert "<h3>Pipeline 1</h3><p>tp 2 | pp 1 | dp 1 | 5 microbatches of 1" in page
    assert "ranks 2 to 3, 5 of 8 samples" in page
    assert '<td class="words">embedding and 0 to 2</td><td>2</td>' in page
    for index, rows in enumerate(found.pipeline_ranks):
        for row in rows:
            assert f'<data value="{row.compute!r}" data-of="pipelines/{index}/pipeline_ranks/{row.pp_rank}/compute">' in page
    with pytest.raises(OptionError, match="compared with no strategies"):
        hs.report(hs.read_pipelines(path), ("holmes",))


@pytest.mark.parametrize("target", [name for name in exporters.every() if name not in exporters.of_run()])
def test_every_other_target_refuses_them_by_name(target, path):
    with pytest.raises(NotSupported) as error:
        exporting.export(hs.read_pipelines(path), target)
    assert str(error.value) == (
        f"{target} cannot express pipelines 3+1, 4: replicas with stages and layers of their own; targets that start "
        "`holmes-sim run`: slurm, torchrun"
    )


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("export", "--to", "megatron", "-o", "launch"), "megatron cannot express pipelines 3+1, 4: "),
        (("simulate", "--leave", "1@2h"), "a plan of unlike pipelines takes no --leave"),
        (("report", "-o", "plan.html", "--strategies", "holmes"), "unlike pipelines takes no --strategies and --profile"),
    ],
)
def test_commands_for_alike_replicas_say_so(run, path, arguments, why):
    command, *options = arguments
    done = run(command, path, *options)
    assert (done.code, why in done.err, done.err.count("\n")) == (2, True, 1)


def test_python_says_what_is_expected(path):
    with pytest.raises(OptionError, match="simulate_pipelines: plan: a plan of unlike pipelines is expected, not 3"):
        hs.simulate_pipelines(3)
    assert repr(hs.simulate_pipelines(hs.read_pipelines(path))).startswith(
        "pair: small in 2 unlike pipelines, a simulated step"
    )
