"""Days, money and energy of a whole training run, by hand."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from holmes_sim import islands, whole_runs
from sim.errors import OptionError
from sim.plan.plan import Plan
from sim.plan.prediction import Prediction
from sim.results.goodput import LLAMA_3
from tests import builders


@pytest.fixture(scope="module")
def plan() -> Plan:
    """Two devices; a step of 10 s that costs 2e-6 USD and 0.5 J a token."""
    found = builders.plan(builders.fleet(builders.cluster(devices=2)), dp=2)
    tokens = found.workload.tokens
    numbers = Prediction(10.0, 1.0, tokens / 10, 1.0, 0.5, (1.0,), 0.0, 0.0, 1.0, 2e-6, 0.5)
    return replace(found, prediction=numbers)


def test_a_run_by_hand(plan):
    found = whole_runs.whole_run(plan, "1B")
    seconds = 1e9 / plan.workload.tokens * 10 / found.goodput
    assert found.tokens == 1e9
    assert found.days[0] == pytest.approx(seconds / 86400)
    assert found.days[1] < found.days[0] < found.days[2]
    assert found.device_hours == pytest.approx(2 * seconds / 3600)
    assert found.usd == pytest.approx(2000 / found.goodput)
    assert found.mwh == pytest.approx(0.5e9 / 3.6e9 / found.goodput)
    assert 0.99 < found.goodput < 1


def test_sixteen_thousand_devices_have_the_effective_time_of_llama_3():
    """The Llama 3 Herd of Models, section 3.3.4: more than 90 % on 16,384 H100."""
    run = whole_runs.usual_failures(16384)
    assert run.between == pytest.approx(LLAMA_3 / 16384)
    assert run.goodput == pytest.approx(0.933, abs=0.001)


def test_without_a_price_there_is_no_money(plan):
    assert plan.prediction is not None
    free = replace(plan.prediction, usd_per_token=None, joules_per_token=None)
    found = whole_runs.whole_run(replace(plan, prediction=free), 1e9)
    assert (found.usd, found.mwh) == (None, None)


def test_a_budget_is_a_cost_of_each_token():
    share = whole_runs.usual_failures(1000).goodput
    assert whole_runs.cost_within("2 MUSD", "1T", 1000) == f"{2e6 * share / 1e12:.9g} USD/token"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: whole_runs.tokens_of("2"), "--tokens '2' is not a number of tokens; write for example '2T'"),
        (lambda: whole_runs.cost_within("2", "1T", 1), "--budget '2' is not a sum of money; write for example '500 kUSD'"),
    ],
)
def test_wrong_numbers(call, message):
    with pytest.raises(OptionError) as caught:
        call()
    assert str(caught.value) == message


def test_goodput_counts_the_failures_that_are_given(plan, monkeypatch, run):
    monkeypatch.setattr(islands, "read_either", lambda path: plan)
    options = ("--checkpoint", "60s", "--restart", "10min", "--fail", "device:100h", "--seeds", 2, "--tokens", "1B")
    seen = json.loads(run("goodput", "plan.json", *options, "--json").out)
    assert seen["whole_run"]["goodput"] == seen["goodput"]["closed_form"] < 0.99
    assert (seen["whole_run"]["checkpoint_s"], seen["whole_run"]["restart_s"]) == (60.0, 600.0)
    assert "Training on 1 B tokens" in run("goodput", "plan.json", *options).out


def test_plan_says_it_and_keeps_to_a_budget(run):
    price = ("--set", "clusters.eth.node.devices.price=2 USD/h")
    pins = ("--tp", 1, "--pp", 1, "--dp", 4, "--microbatch-size", 4, "--recompute", "none", "--schedule", "1f1b")
    seen = run("plan", "lab/lab-slow-dp", *pins, *price, "--tokens", "30B", "--budget", "1 MUSD")
    assert seen.code == 0 and "Training on 30 B tokens" in seen.out
    poor = run("plan", "lab/lab-slow-dp", *pins, *price, "--tokens", "30B", "--budget", "1USD")
    assert poor.code == 3
    assert poor.err.startswith("error: no plan of lab-slow-dp has cost at most 3.33")
    assert run("plan", "holmes-hybrid-4", "--budget", "1 kUSD").err.startswith("error: --budget needs --tokens")
    assert run("plan", "holmes-hybrid-4", "--tokens", "1T", "--json").err.startswith("error: --tokens prints a table")


def test_plan_keeps_to_days_or_says_what_is_reached(run):
    """The step of 68.56 ms trains 300 B tokens in 7.27 days; with larger microbatches 47.74 ms are enough."""
    pins = ("--tp", 1, "--pp", 1, "--dp", 4, "--microbatch-size", 4, "--recompute", "none", "--schedule", "1f1b")
    seen = run("plan", "lab/lab-slow-dp", *pins, "--tokens", "300B", "--days", 8)
    assert seen.code == 0
    assert "Required: days at most 8 for 300 B tokens, goodput 99.9% (Llama 3's failures on 4 devices)." in " ".join(
        seen.out.split()
    )
    late = run("plan", "lab/lab-slow-dp", *pins, "--tokens", "300B", "--days", 6)
    assert (late.code, late.out) == (3, "")
    assert late.err.splitlines() == [
        "error: no plan that was found trains 300 B tokens in 6 days, with steps of 56.59 ms at a goodput of 99.9% "
        "(Llama 3's failures on 4 devices): the fastest takes 7.27 days, with steps of 68.56 ms",
        "error: no plan of the searched space takes less than 7.234 days; remedy: at least 7.27 days, or at most 247B tokens",
        "error: without --tp 1: still 7.27 days",
        "error: without --pp 1: still 7.27 days",
        "error: without --dp 4: still 7.27 days",
        "error: without --microbatch-size 4: a step of 0.04774 s",
        "error: without --schedule 1f1b: still 7.27 days",
        "error: without --recompute none: still 7.27 days",
    ]
    assert run("plan", "holmes-hybrid-4", "--days", 3).err.startswith("error: --days needs --tokens")
