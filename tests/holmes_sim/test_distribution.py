"""Distributions of steps over seeds of faults: quantiles, the command line, the chart."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import holmes_sim as hs
from holmes_sim import charts, commands, distribution, files
from holmes_sim.distribution import Troubled
from holmes_sim.printing.distributions import drawn_text
from planner.request import Wishes
from sim.engine.faults import DrawnFaults, Faults, Stragglers
from sim.engine.timeline import from_json
from sim.formats import planfile
from sim.hardware.cluster import Device
from sim.plan.plan import Plan
from tests import builders
from tests.builders import cluster, fleet
from tests.more import more

Make = Callable[..., Any]


@pytest.fixture(scope="module")
def hybrid() -> Plan:
    wishes = Wishes(tp=2, pp=2, dp=8, microbatch_size=4, recompute="none", schedule="1f1b", cp=1)
    return commands.plan(commands.load("holmes-hybrid-4"), wishes=wishes).plan


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan of few devices, whose steps are simulated in hundredths of a second."""
    pins = {"tp": 1, "pp": 2, "dp": 2, "microbatch_size": 4, "recompute": "none", "schedule": "1f1b", "cp": 1}
    path = tmp_path_factory.mktemp("plans") / "plan.json"
    files.write(path, planfile.to_json(commands.plan(commands.load("lab/lab-hybrid-nics"), wishes=Wishes(**pins)).plan))
    return path


def counted(plan: Plan) -> Troubled:
    """A hundred seeds whose steps take 1 to 100 s, the longest first."""
    steps = tuple(float(step) for step in range(100, 0, -1))
    return Troubled(plan, Faults(Stragglers(0.1, 2.0)), 1.0, tuple(range(100)), steps, 100, 0.5)


def test_quantiles_are_steps_of_seeds() -> None:
    found = counted(builders.plan(fleet(cluster())))
    assert found.summary() == {
        "predicted": 1.0, "fault_free": 1.0, "mean": 50.5, "p50": 50.0, "p95": 95.0, "p99": 99.0, "slowest": 100.0,
    }  # fmt: skip
    assert found.slowest == 0
    assert repr(found).endswith("mean 50.5 s, p50 50 s, p95 95 s, p99 99 s, slowest 100 s")
    assert found.frame["step (s)"].tolist()[:2] == [100.0, 99.0]


def test_few_seeds_know_their_deviation_badly() -> None:
    """Steps of 1 and 3 s: a standard error of 1 s, of which Student's t takes 12.706 for two seeds."""
    two = replace(counted(builders.plan(fleet(cluster()))), seeds=(0, 1), steps_s=(1.0, 3.0))
    assert two.mean_within == pytest.approx(12.706 / 2)
    four = replace(two, seeds=(0, 1, 2, 3), steps_s=(1.0, 1.0, 3.0, 3.0))
    assert four.mean_within == pytest.approx(3.182 * (4 / 3) ** 0.5 / 2 / 2)
    many = replace(two, seeds=tuple(range(24)), steps_s=(1.0, 3.0) * 12)
    assert many.mean_within == pytest.approx(1.96 * (24 / 23) ** 0.5 / 24**0.5 / 2)


def test_a_fault_of_all_devices_is_simulated_once(hybrid: Plan) -> None:
    found = hs.trouble(hybrid, stragglers="100%:2", seeds=range(50))
    assert found.distinct_steps == 2  # the step without faults and the step with them
    assert len(set(found.steps_s)) == 1
    assert 1.5 * found.fault_free_s < found.mean_s < 2 * found.fault_free_s  # compute doubles, the network does not


def test_seeds_end_when_the_mean_is_known(hybrid: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal steps: the least number of seeds. Steps of 1 and 2 s by turns: a deviation of 0.5 s, a mean of 1.5 s, so that
    1 % takes (1.96 x 0.5 / 0.015)^2 = 4,268 seeds: the most are simulated. Without time, there is one batch."""
    assert len(hs.trouble(hybrid, stragglers="100%:2").seeds) == 24
    draws = iter(range(10_000))
    monkeypatch.setattr(distribution, "draw", lambda *given: next(draws))
    monkeypatch.setattr(distribution, "_step", lambda plan, drawn: 1.0 + drawn % 2)
    found = hs.trouble(hybrid, jitter="3%")
    assert (len(found.seeds), found.mean_s) == (200, 1.5)
    assert found.mean_within == pytest.approx(1.96 * 0.5 / 1.5 / 199**0.5)
    monkeypatch.setattr(distribution, "LONGEST_S", 0.0)
    assert len(hs.trouble(hybrid, jitter="3%").seeds) == 8


def test_slow_seeds_are_few_and_kept(hybrid: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each simulation is slow and no time is left, there is one seed, then one for each of three cores, all at once.
    Ctrl-C keeps the seeds before these."""
    chunks: list[int] = []

    def each(work: object, items: list[int], least: int) -> list[float]:
        chunks.append(len(items))
        assert len(items) == 1 or least == 2
        return [1.0 + item % 2 for item in items]

    draws = iter(range(10_000))
    monkeypatch.setattr(distribution, "draw", lambda *given: next(draws))
    monkeypatch.setattr(distribution, "cores", lambda: 3)
    monkeypatch.setattr(distribution, "SLOW_S", -1.0)
    monkeypatch.setattr(distribution, "LONGEST_S", 0.0)
    monkeypatch.setattr("holmes_sim.processes.each", each)
    found = hs.trouble(hybrid, jitter="3%")
    assert (found.steps_s, found.seeds, chunks) == ((1.0, 2.0, 1.0, 2.0), (0, 1, 2, 3), [1, 3])

    def interrupted(work: object, items: list[int], least: int) -> list[float]:
        if len(items) > 1:
            raise KeyboardInterrupt
        return [3.0]

    monkeypatch.setattr("holmes_sim.processes.each", interrupted)
    found = hs.trouble(hybrid, jitter="3%")
    assert (found.steps_s, found.seeds, found.interrupted) == ((3.0,), (0,), True)


def test_seeds_of_many_passes_begin_on_all_cores(hybrid: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """32 ranks with 24 microbatches make 2 x 32 x 24 passes: 1,536. Seeds that take three seconds each, where five are allowed,
    are three, one for each core: three more would end after six. Equal devices without jitter are simulated once."""
    chunks: list[int] = []
    clock = [0.0]

    def each(work: object, items: list[int], least: int) -> list[float]:
        chunks.append(len(items))
        clock[0] += 3.0
        return [1.0 + item % 2 for item in items]

    draws = iter(range(10_000))
    monkeypatch.setattr(distribution, "draw", lambda *given: next(draws))
    monkeypatch.setattr(distribution, "cores", lambda: 3)
    monkeypatch.setattr(distribution, "LONGEST_S", 5.0)
    monkeypatch.setattr(distribution.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr("holmes_sim.processes.each", each)
    assert hybrid.config.num_microbatches == (24,) * 8
    for most, given, expected in (
        (1535, {"jitter": "3%"}, [3]),
        (1536, {"jitter": "3%"}, [1, 3]),
        (1, {"stragglers": "1%:2"}, [1, 3]),
    ):
        monkeypatch.setattr(distribution, "MANY_PASSES", most)
        clock[0] = 0.0
        chunks.clear()
        assert len(hs.trouble(hybrid, **given).seeds) == sum(expected)
        assert chunks == expected


@more
def test_more_stragglers_make_no_seed_of_this_plan_faster(hybrid: Plan) -> None:
    """Holds for this plan and these seeds; it is not a law.

    A slower device may separate messages that otherwise share a link (Graham's scheduling anomalies), so in other plans more
    stragglers may shorten a step.
    """
    few, many = (hs.trouble(hybrid, stragglers=share, seeds=range(4)) for share in ("2%:1.3", "20%:1.3"))
    assert all(a <= b * (1 + 1e-9) for a, b in zip(few.steps_s, many.steps_s, strict=True))
    assert few.mean_s < many.mean_s


def test_the_command_prints_the_distribution(run: Make, written: Path, tmp_path: Path) -> None:
    trace, picture = tmp_path / "slowest.json", tmp_path / "steps.svg"
    command = ("simulate", written, "--stragglers", "25%:1.5", "--seeds", 5)
    seen = run(*command, "--json", "--trace", trace, "--chart", picture)
    assert seen.code == 0
    facts = json.loads(seen.out)
    assert facts["format"] == "holmes-sim/trouble/1"
    assert [row["seed"] for row in facts["seeds"]] == list(range(5))
    steps = [row["step_s"] for row in facts["seeds"]]
    assert facts["step_s"]["slowest"] == max(steps) == steps[facts["slowest_seed"]]
    assert from_json(trace.read_text(), str(trace)).step_s == pytest.approx(max(steps))
    assert picture.stat().st_size > 0
    again = json.loads(run(*command, "--json").out)
    assert again | {"simulation": None} == facts | {"simulation": None}
    table = run(*command).out
    assert f"Seed {facts['slowest_seed']} is the slowest:" in table
    assert "1.5 times as slow" in table
    assert "p50" in table and "p95" not in table, "of 5 seeds"
    assert "The mean is known to " in table


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--seeds", 3), "error: --seeds needs a kind of fault; add for example --stragglers 1%:1.5"),
        (("--jitter", "3%", "--explain"), "error: --explain explains a step without faults; leave out --explain or the faults"),
        (("--jitter", "much"), "error: --jitter 'much' is not a standard deviation over the mean; write for example 3%"),
        (("--jitter", "3"), "error: --jitter '3': it must be at most 1 (100%); write for example 3%"),
    ],
)
def test_wrong_options_are_one_line(run: Make, written: Path, options: tuple[object, ...], message: str) -> None:
    seen = run("simulate", written, *options)
    assert (seen.code, seen.out, seen.err) == (2, "", message + "\n")


def test_the_chart_shows_every_seed() -> None:
    counts, shares = charts.distribution(counted(builders.plan(fleet(cluster())))).axes
    assert sum(bar.get_height() for bar in counts.patches) == 100
    assert counts.get_xlabel() == shares.get_xlabel() == "step (s)"
    below = shares.lines[0].get_ydata()
    assert (below[0], below[50], below[-1]) == (0.0, 0.5, 1.0)


def test_the_text_of_drawn_faults_names_a_port_once() -> None:
    nic = ("nic", "ib", 1, "infiniband", 2)
    trunk = (("trunk", "ib", "roce", "ethernet", "out"), ("trunk", "roce", "ib", "ethernet", "out"))
    weak = tuple((link, 0.25) for link in (*trunk, (*nic, "out"), (*nic, "in")))
    down = tuple(((*nic, direction), ((0.0, 1.5), (3.0, 4.5))) for direction in ("out", "in"))
    drawn = DrawnFaults(((Device("ib", 0, 3), 1.5),), weak, down, 0.1, 7)
    assert drawn_text(drawn) == (
        "ib/node0/dev3 (1.5 times as slow); ib-roce ethernet at 25%, ib/node1 infiniband 2 at 25%; "
        "ib/node1 infiniband 2 down from 0 to 1.5 s, 3 to 4.5 s; jitter"
    )
    assert drawn_text(DrawnFaults(tuple((Device("ib", 0, index), 1.5) for index in range(5)))) == "5 slow devices"
    assert drawn_text(DrawnFaults()) == "no faults"
