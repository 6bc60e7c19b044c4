"""The Python API of a loop with reality: the same lists, folders and fits as the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

import holmes_sim as hs
from holmes_sim.own_runs import Shortlist
from sim.formats import stacks

PINS = hs.Wishes(tp=2, pp=2, dp=8, schedule="1f1b", recompute="none", zero_stage=1)
"""Pins that leave three layouts: microbatch sizes 1, 2 and 4."""


pytestmark = pytest.mark.usefixtures("in_one_process")


@pytest.fixture(scope="module")
def topology() -> hs.Topology:
    return hs.edited(hs.load("holmes-infiniband-4"), {"workload.global_batch_size": 96})


@pytest.fixture(scope="module")
def listed(topology: hs.Topology) -> Shortlist:
    return hs.shortlist(topology, 3, wishes=PINS)


def test_a_list_has_plans_with_predicted_steps_ranges_and_reasons(listed: Shortlist) -> None:
    assert sorted(one.plan.config.microbatch_size for one in listed.plans) == [1, 2, 4]
    for one in listed.plans:
        assert one.plan.prediction is not None
        assert one.range_s[0] < one.step_s == one.plan.prediction.step_s < one.range_s[1]
    first, second, _ = listed.plans
    assert first.why.startswith("least expected step; fastest in ")
    assert second.why.endswith(f"; mb {second.plan.config.microbatch_size}")
    assert repr(listed).startswith("holmes-infiniband-4: 3 of 3 layouts to measure with megatron; ")


def test_the_frame_has_a_row_for_each_plan_in_the_order_of_the_folders(listed: Shortlist) -> None:
    frame = listed.frame
    assert list(frame.folder) == ["1", "2", "3"]
    assert list(frame.microbatch_size) == [one.plan.config.microbatch_size for one in listed.plans]
    assert list(frame.why) == [row["why"] for row in listed.facts()["plans"]]


def test_saved_lists_are_measured_fitted_and_planned_with(listed: Shortlist, topology: hs.Topology, tmp_path: Path) -> None:
    """The first plan takes 1.3 times as long as predicted; a plan with the fitted stack predicts that."""
    folder, mine = tmp_path / "runs", tmp_path / "mine.yaml"
    listed.save(folder)
    assert sorted(path.name for path in folder.iterdir()) == ["1", "2", "3", "README.md"]
    assert "holmes-sim plan TOPOLOGY --tp 2 --pp 2 --dp 8" in (folder / "README.md").read_text(encoding="utf-8")
    first = listed.plans[0]
    (folder / "1" / "measured.yaml").write_text(f"step_s: {1.3 * first.step_s}\n", encoding="utf-8")
    found = hs.calibrate(folder)
    assert found.predicted_s == pytest.approx((1.3 * first.step_s,), rel=0.05)
    assert list(found.frame.outcome) == ["ran", "not measured", "not measured"]
    assert repr(found).startswith("stack fitted to 1 runs: mean error ")
    found.save(mine)
    assert stacks.load(str(mine)).name == "mine"
    assert stacks.load(str(mine)).stack().gemm == pytest.approx(found.stack.gemm, rel=1e-3)
    again = hs.shortlist(topology, 3, wishes=PINS, measured=[folder])
    assert again.proposals.measured == 1
    assert len(again.plans) == 2


def test_a_shipped_topology_is_named_in_the_next_commands(tmp_path: Path) -> None:
    wishes = hs.Wishes(tp=2, pp=2, dp=8, microbatch_size=4, schedule="1f1b", recompute="none", zero_stage=1)
    hs.shortlist(hs.load("holmes-infiniband-4"), 1, wishes=wishes).save(tmp_path / "runs")
    text = (tmp_path / "runs" / "README.md").read_text(encoding="utf-8")
    assert f"holmes-sim plan holmes-infiniband-4 {wishes} --stack mine.yaml" in text


def test_wrong_arguments_are_one_line(listed: Shortlist, topology: hs.Topology, tmp_path: Path) -> None:
    with pytest.raises(hs.HolmesError, match=r"number: 0; a list has 1 plan or more"):
        hs.shortlist(topology, 0)
    with pytest.raises(hs.HolmesError, match=r"target 'megatorn' is unknown"):
        hs.shortlist(topology, 1, "megatorn")
    with pytest.raises(hs.HolmesError, match=r"nowhere: no such folder"):
        hs.calibrate("nowhere")
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(hs.HolmesError, match=r"exists and is not empty; name a new folder"):
        listed.save(tmp_path)
