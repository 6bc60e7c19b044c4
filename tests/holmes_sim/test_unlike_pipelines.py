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


@pytest.mark.parametrize("target", exporters.names())
def test_every_target_refuses_them_by_name(target, path):
    with pytest.raises(NotSupported) as error:
        exporting.export(hs.read_pipelines(path), target)
    assert str(error.value) == f"{target} cannot express pipelines 3+1, 4: replicas with stages and layers of their own"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("export", "--to", "megatron", "-o", "launch"), "megatron cannot express pipelines 3+1, 4: "),
        (("simulate", "--chart", "step.png"), "a plan of unlike pipelines takes no --chart"),
        (("simulate", "--explain"), "a plan of unlike pipelines takes no --explain"),
        (("show", "-o", "plan.png"), "a plan of unlike pipelines is not drawn; leave out -o"),
        (("report", "-o", "plan.html"), "1: format: this is a plan of unlike pipelines; a plan is expected"),
        (("lab",), "1: format: this is a plan of unlike pipelines; a plan is expected"),
    ],
)
def test_commands_for_alike_replicas_say_so(run, path, arguments, why):
    command, *options = arguments
    done = run(command, path, *options)
    assert (done.code, why in done.err, done.err.count("\n")) == (2, True, 1)


def test_python_says_what_is_expected(path):
    with pytest.raises(OptionError, match="simulate_pipelines: a plan of unlike pipelines is expected, not 3"):
        hs.simulate_pipelines(3)
    assert repr(hs.simulate_pipelines(hs.read_pipelines(path))).startswith(
        "pair: small in 2 unlike pipelines, a simulated step"
    )
