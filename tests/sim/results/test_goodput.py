"""Goodput: the published optima, the closed form beside the same model as events, and time that adds up."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.errors import HolmesError
from sim.hardware.cluster import Device, Trunk
from sim.results import goodput
from sim.results.goodput import DAY, HOUR, Account, Run, daly, simulated, young
from tests import builders
from tests.builders import cluster, fleet, nic


@pytest.mark.parametrize(("hours", "minutes"), [(24, 117), (6, 57)])
def test_dalys_optimum_as_published(hours: float, minutes: float) -> None:
    """FGCS 22, figures 3 and 4: a checkpoint of 5 min, and M = 24 h and 6 h."""
    assert round(daly(300.0, hours * HOUR) / 60) == minutes


def test_dalys_optimum_where_failures_are_frequent() -> None:
    """FGCS 22, figure 5: a checkpoint of 5 min, M = 15 min, 9.1 min."""
    assert round(daly(300.0, 900.0) / 60, 1) == 9.1
    assert daly(300.0, 100.0) == 100.0


def test_youngs_optimum() -> None:
    assert young(50.0, 10000.0) == 1000.0


def test_llama_3_failed_every_three_hours() -> None:
    run = Run({"device": 16384, "node": 2048, "link": 16384}, goodput.mtbf(()), 10.0, 300.0, 600.0)
    assert run.between == pytest.approx(54 * 24 / 419 * HOUR)
    assert round(goodput.LLAMA_3 / HOUR) == 50677
    assert run.goodput > 0.9  # as reported there, with a guess of how long it takes to save and to restart


def run_of(mean: float = 1000.0, checkpoint: float = 20.0, restart: float = 50.0, interval: float = 200.0) -> Run:
    return Run({"device": 1, "node": 1, "link": 1}, {"device": mean}, checkpoint, restart, interval)


def test_goodput_by_hand() -> None:
    """M = 1000, e^(R/M) = e^0.05, e^((interval + checkpoint)/M) = e^0.22: 200 / (1000 x 1.051271 x 0.246077)."""
    assert run_of().goodput == pytest.approx(0.773116, abs=1e-6)


def test_rates_of_kinds_add_up() -> None:
    run = Run({"device": 8, "node": 2, "link": 4}, {"device": 800.0, "node": 50.0, "link": 400.0}, 1.0, 1.0, 1.0)
    assert run.between == pytest.approx(1 / (0.01 + 0.04 + 0.01))


@pytest.mark.parametrize(
    "run", [run_of(), run_of(restart=400.0), run_of(interval=1500.0), run_of(checkpoint=300.0, interval=50.0)]
)
def test_closed_form_and_events_agree(run: Run) -> None:
    """Over 30 runs of 2,000 failures each, within four standard errors of their mean."""
    horizon = 2000 * run.between
    shares = [simulated(run, horizon, seed).useful / horizon for seed in range(30)]
    mean = sum(shares) / len(shares)
    error = math.sqrt(sum((share - mean) ** 2 for share in shares) / (len(shares) - 1) / len(shares))
    assert abs(mean - run.goodput) < 4 * error
    assert error < 0.005


@given(st.floats(10, 1e4), st.floats(0, 100), st.floats(0, 500), st.floats(1, 1000), st.integers(0, 99), st.floats(1, 1e4))
def test_all_time_is_accounted_for(
    mean: float, checkpoint: float, restart: float, interval: float, seed: int, horizon: float
) -> None:
    spent = simulated(run_of(mean, checkpoint, restart, interval), horizon, seed)
    assert spent.useful + spent.saving + spent.lost + spent.restarting == pytest.approx(horizon)
    assert min(spent.useful, spent.saving, spent.lost, spent.restarting) >= 0


@given(st.floats(100, 1e6), st.floats(0.001, 0.2), st.floats(0.5, 2.0).filter(lambda by: abs(by - 1) > 0.2))
def test_no_other_interval_is_better_than_dalys(between: float, part: float, by: float) -> None:
    run = run_of(between, part * between)
    best = daly(run.checkpoint, between)
    assert replace(run, interval=by * best).goodput < replace(run, interval=best).goodput


def test_a_run_without_failures_only_saves() -> None:
    spent = simulated(run_of(1e15, 20.0, 50.0, 80.0), 1000.0, 0)
    assert spent == Account(useful=800.0, saving=200.0)


def test_a_seed_is_one_run() -> None:
    assert simulated(run_of(), DAY, 3) == simulated(run_of(), DAY, 3)
    assert simulated(run_of(), DAY, 3) != simulated(run_of(), DAY, 4)


def test_components_of_a_plan_that_can_fail() -> None:
    """Two of three nodes of a (two NICs each), one of b, the trunk between; a third cluster and its trunk are not used."""
    a = cluster("a", 3, 2, (nic("roce", count=2),))
    b, c = cluster("b", 1, 2, (nic("roce"),)), cluster("c", 1, 2, (nic("roce"),))
    trunks = Trunk(("a", "b"), "roce", 1e9, 0.0), Trunk(("b", "c"), "roce", 1e9, 0.0)
    machines = fleet(a, b, c, trunks=trunks)
    nodes = ("a", 0), ("a", 1), ("b", 0)
    placement = tuple(Device(name, node, index) for name, node in nodes for index in range(2))
    plan = builders.plan(machines, dp=6, placement=placement)
    assert goodput.counts(plan) == {"device": 6, "node": 3, "link": 6}


def test_hosts_of_a_domain_fail_one_by_one() -> None:
    """Three devices of a domain of two hosts with two devices and a NIC each: both hosts and both NICs can fail."""
    cluster_of_domains = cluster("a", 1, 2)
    machines = fleet(replace(cluster_of_domains, node=cluster_of_domains.node.joined(2)))
    assert goodput.counts(builders.plan(machines, dp=3)) == {"device": 3, "node": 2, "link": 2}


def test_mtbf_as_text() -> None:
    assert goodput.mtbf(("device:50000h", "link: 2e6 h")) == {"device": 1.8e8, "link": 7.2e9}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gpu:5h", "--fail 'gpu:5h' is not device, node or link with its MTBF; write for example device:50000h"),
        ("node:5", "--fail '5' is not a time with a unit; write for example device:50000h"),
        ("node:0h", "--fail 'node:0h': an MTBF must be above 0; write for example device:50000h"),
    ],
)
def test_a_wrong_mtbf_is_one_line(text: str, said: str) -> None:
    with pytest.raises(HolmesError) as error:
        goodput.mtbf((text,))
    assert str(error.value) == said
