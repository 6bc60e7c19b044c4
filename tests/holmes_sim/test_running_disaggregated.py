"""Plans with two sets of ranks on real processes, beside their simulation."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import holmes_sim as hs
from holmes_sim import printing, running_disaggregated
from holmes_sim.running_disaggregated import MeasuredDisaggregated
from sim.disaggregation.plan import DisaggregatedPlan
from sim.errors import NotSupported
from sim.formats import disaggregatedfile
from tests.two_rank_sets import plan

LOOPBACK = (
    "messages between the 3 hosts of the plan went over the loopback of this machine, not over the plan's links, which "
    "`holmes-sim lab` shapes"
)


def compared() -> MeasuredDisaggregated:
    """The simulated timeline in place of a measured one."""
    run = hs.simulate_disaggregated(plan())
    return MeasuredDisaggregated(
        plan(), run.prediction, replace(run.timeline, steps_s=(run.prediction.step_s,), compute="paced")
    )


def test_the_simulated_timeline_has_the_predicted_parts():
    assert compared().error == pytest.approx(0.0)
    for what, simulated, measured in compared().times():
        assert measured == pytest.approx(simulated, rel=1e-6), what


def test_it_is_printed():
    lines = [str(part) for part in printing.measured_disaggregated(compared()).renderables]
    assert lines[0].startswith("two-types: attention on 2 devices of new, experts on 1 of old")
    assert lines[1] == "median of 1 steps, paced compute"


def test_what_cannot_be_executed_is_refused():
    pytest.importorskip("torch")
    stage = replace(plan().stage, workload=replace(plan().workload, optimizer="adam-8bit"))
    with pytest.raises(NotSupported, match=r"cannot execute this plan: optimizer adam-8bit \(adam\)"):
        hs.run_disaggregated(DisaggregatedPlan(stage, plan().made_by), hs.RunOptions())


def test_the_command_prints_both(run, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    file = tmp_path / "split.json"
    file.write_text(disaggregatedfile.to_json(plan()))
    monkeypatch.setattr(running_disaggregated, "run_disaggregated", lambda given, options: compared())
    seen = run("run", file, "--local", "--compute", "paced")
    assert seen.code == 0
    lines = [line.split() for line in seen.out.splitlines()]
    assert ["step", "42.44", "ms", "42.44", "ms", "+0.0%"] in lines
    found = json.loads(run("run", file, "--local", "--compute", "paced", "--json").out)
    assert found["format"] == "holmes-sim/disaggregated-run/1"
    assert found["seconds"]["step"]["measured"] == pytest.approx(found["seconds"]["step"]["simulated"])
    assert found["notes"] == [LOOPBACK]
    assert f"Note: {LOOPBACK}." in " ".join(seen.err.split())
