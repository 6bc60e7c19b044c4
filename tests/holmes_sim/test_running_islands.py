"""Measured outer periods beside simulated ones: their numbers, their table, and what is refused before anything runs."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from holmes_sim import lab, printing, running_islands
from holmes_sim.commands import load
from holmes_sim.islands import plan_islands
from holmes_sim.lab.traffic import OUTER, traffic_of
from holmes_sim.running_islands import MeasuredIslands
from holmes_sim.torch_backend.islands.measured import MeasuredPeriods, RankTimes, measured
from holmes_sim.torch_backend.run_options import RunOptions
from sim.formats import islandsfile
from sim.islands.prediction import predict
from sim.plan.islands import IslandsPlan
from sim.sync import Sync
from tests.holmes_sim.test_lab import refusal
from tests.more import more

REFUSED = refusal() or ("" if find_spec("torch") else "torch is not installed")
PERMITTED = pytest.mark.skipif(bool(REFUSED), reason=f"THE LAB IS NOT TESTED HERE: {REFUSED}")
SCALE = 20.0
"""Links are slower and compute takes longer by this factor, so that what this machine adds is small beside them."""
SHORT = 6.0
"""The factor where only too fast would be wrong, so that what this machine adds does not matter."""


@pytest.fixture(scope="module")
def plan() -> IslandsPlan:
    found = plan_islands(load("lab/lab-two-sites"), sync="diloco=30,int8", tp=1, pp=1, microbatch_size=2).plan
    assert isinstance(found, IslandsPlan)
    return dataclasses.replace(found, sync=Sync("diloco", inner_steps=2), prediction=None, certificate=None)


def rank(island: int, inner: float, waited: float, exchanges: float, loss: float) -> RankTimes:
    return RankTimes(island, (2.0 + inner, 2.5), inner, waited, exchanges, (loss, loss / 2), "CPU")


def test_periods_of_a_launch_come_from_the_times_of_its_ranks() -> None:
    """The slowest rank counts in an island; the exchange is timed by the island that comes last, exposed is its wait."""
    ranks = [rank(0, 0.5, 0.4, 0.4, 1.0), rank(0, 0.6, 0.3, 0.3, 0.0), rank(1, 0.8, 0.2, 0.25, 3.0)]
    found = measured([RankTimes.from_json(one.to_json()) for one in ranks], (0.75, 0.25), 1.0, "real")
    assert found == MeasuredPeriods((2.8, 2.5), (0.6, 0.8), 0.25, 0.2, (1.5, 0.75), 1.0, "real", ("CPU",))
    assert found.period_s == pytest.approx(2.65)
    assert MeasuredPeriods.from_json(found.to_json()) == found


def test_simulated_times_are_those_of_the_scale(plan: IslandsPlan) -> None:
    _, simulated = predict(plan)
    twice = MeasuredPeriods((4 * simulated.period_s,), (0.2, 0.2), 0.1, 0.1, (0.0, 0.0), 2.0, "paced", ())
    compared = MeasuredIslands(plan, simulated, twice)
    assert compared.error == pytest.approx(-0.5)
    assert [what for what, _, _ in compared.times()] == [
        "outer period", "inner step of island 0", "inner step of island 1", "exchanges of a period", "waiting and outer updates"
    ]  # fmt: skip
    assert compared.times()[1][1:] == (2 * simulated.inner_step_s[0], 0.2)
    console = Console(width=120, file=io.StringIO(), record=True)
    console.print(printing.measured_islands(compared))
    lines = [line.split() for line in console.export_text().splitlines()]
    assert ["Simulated", "times", "are", "multiplied", "by", "2,", "the", "time", "scale", "of", "this", "run."] in lines
    assert [line[-1] for line in lines if line[:2] == ["outer", "period"]] == ["-50.0%"]


def test_what_a_run_of_islands_cannot_do_is_refused(plan: IslandsPlan, tmp_path: Path, run: Callable[..., Any]) -> None:
    path = tmp_path / "islands.json"
    path.write_text(islandsfile.to_json(plan), encoding="utf-8")
    seen = run("run", path)
    assert (seen.code, seen.err) == (
        2, f"error: {path}: start its 4 ranks with torchrun, or all of them on this machine with --local\n"
    )  # fmt: skip
    seen = run("run", path, "--local", "-o", tmp_path / "timeline.json")
    assert (seen.code, seen.err) == (
        2, f"error: {path}: a run of a plan of islands writes no timeline (-o); --json prints its outer periods\n"
    )  # fmt: skip
    seen = run("lab", path, "--chart", tmp_path / "lab.png")
    assert (seen.code, seen.err) == (
        2, f"error: {path}: lab draws no --chart of a plan of islands; `holmes-sim show` draws its simulation\n"
    )  # fmt: skip


def test_the_lab_has_the_ranks_of_all_islands_and_the_groups_between_them(plan: IslandsPlan) -> None:
    traffic = traffic_of(plan)
    assert [str(device) for device in traffic.placement] == [
        "north/node0/dev0", "north/node0/dev1", "south/node0/dev0", "south/node0/dev1"
    ]  # fmt: skip
    assert {(group.kind, group.ranks, group.nic) for group in traffic.groups} == {
        ("dp", (0, 1), "intra_node"), ("dp", (2, 3), "intra_node"), (OUTER, (0, 2), "ethernet"), (OUTER, (1, 3), "ethernet")
    }  # fmt: skip
    wiring = lab.wire(plan, SCALE)
    assert [(rank.rank, rank.local_rank, rank.host) for rank in wiring.ranks] == [(0, 0, 0), (1, 1, 0), (2, 0, 1), (3, 1, 1)]
    alone = dataclasses.replace(plan, sync=Sync("independent"))
    assert {group.kind for group in traffic_of(alone).groups} == {"dp"}


@more
@PERMITTED
@pytest.mark.parametrize(
    "sync",
    [Sync("every-step", compression="int8"), Sync("streaming-diloco", inner_steps=4, overlap_steps=2, fragments=2)],
)
def test_no_outer_period_is_faster_than_its_links(sync: Sync, plan: IslandsPlan) -> None:
    """What waits the model's seconds and sends the exchange's bytes over the shaped trunk cannot be much faster.

    A rank that arrives late at an exchange measures less of it, while the other rank of its node has the NIC alone."""
    given = dataclasses.replace(plan, sync=sync)
    compared = running_islands.run_in_lab(given, RunOptions(steps=1, compute="paced", scale=SHORT)).compared
    assert compared.measured.scale == SHORT
    assert compared.measured.period_s >= 0.93 * compared.times()[0][1]
    assert compared.measured.exchange_s >= 0.9 * compared.simulated.exchange_s * SHORT
