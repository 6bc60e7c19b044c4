"""Days, money and energy of a whole run of islands, by hand: by tokens, and by effective tokens."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from holmes_sim import islands, printing
from holmes_sim.intervals import ratios
from holmes_sim.islands_whole_runs import whole_run_islands
from sim.errors import OptionError
from sim.islands.token_worth import token_worth
from sim.results.goodput import LLAMA_3
from sim.sync import Sync
from tests.holmes_sim.test_printing_whatifs import lines_of
from tests.sim.results.test_islands_cost import plan as priced

PLAN = priced()
RATE = 10 * PLAN.workload.tokens / 120


def test_a_run_by_tokens():
    """An island fails every LLAMA_3 / 2, and loses half a period and a restart of 300 s."""
    found = whole_run_islands(PLAN, "1B")
    assert found.goodput == pytest.approx(1 - (300 + 60) / (LLAMA_3 / 2), rel=1e-6)
    days = 1e9 / RATE / found.goodput / 86400
    low, high = ratios(False, False)
    spent = found.by_tokens
    assert spent.days == pytest.approx((days, days * (20 + 100 * low) / 120, days * (20 + 100 * high) / 120))
    assert spent.device_hours == pytest.approx(4 * 24 * days)
    assert spent.usd == pytest.approx(8.0 * days * 86400)
    assert spent.mwh == pytest.approx((0.5 + 2400 / (10 * PLAN.workload.tokens)) * 1e9 / found.goodput / 3.6e9)


def test_effective_tokens_take_longer():
    worth = token_worth(PLAN)
    assert worth is not None and worth.low < worth.expected < worth.high
    found = whole_run_islands(PLAN, 1e9)
    spent, by_tokens = found.by_effective_tokens, found.by_tokens
    assert spent.tokens == pytest.approx(1e9 / worth.expected)
    expected = by_tokens.days[0] / worth.expected
    assert spent.days == pytest.approx((expected, by_tokens.days[0] / worth.high, by_tokens.days[0] / worth.low))
    assert spent.usd == pytest.approx(by_tokens.usd / worth.expected)


def test_an_unknown_worth_is_said():
    found = whole_run_islands(replace(PLAN, sync=Sync("co2", 10)), "1B")
    assert found.by_effective_tokens is None
    lines = lines_of(printing.islands_whole_run(found))
    assert lines[1] == "Training on 1 B tokens"
    assert "How many tokens reach the loss of synchronous training on these is unknown for this strategy." in lines


def test_islands_without_exchanges_have_checkpoints():
    """Of 10 s, at Daly's interval, with failures every LLAMA_3 / 2."""
    found = whole_run_islands(replace(PLAN, sync=Sync("independent")), "1B")
    assert 1 - found.goodput == pytest.approx((2 * 10 / (LLAMA_3 / 2)) ** 0.5, rel=0.1)


def test_the_table_names_both_counts():
    lines = lines_of(printing.islands_whole_run(whole_run_islands(PLAN, "1B")))
    assert lines[2].split() == ["name", "by", "tokens", "by", "effective", "tokens"]
    (days,) = (line for line in lines if line.startswith("days"))
    assert ", 80 % range " in days and ", range of the worth " in days


@pytest.mark.parametrize("tokens", [0, "0", -1.0, float("inf")])
def test_at_least_a_token_is_trained(tokens):
    with pytest.raises(OptionError, match=r"^--tokens .*2T"):
        whole_run_islands(PLAN, tokens)


def test_goodput_counts_the_failures_that_are_given(monkeypatch, run):
    monkeypatch.setattr(islands, "read_either", lambda path: PLAN)
    options = ("--checkpoint", "60s", "--restart", "10min", "--fail", "device:100h", "--tokens", "1B")
    seen = json.loads(run("goodput", "islands.json", *options, "--json").out)
    assert seen["whole_run"]["goodput"] == seen["goodput"] < 0.999
    assert seen["whole_run"]["restart_s"] == 600.0
    assert "by effective tokens" in run("goodput", "islands.json", *options).out
    wrong = run("goodput", "islands.json", *options, "--interval", "1h")
    assert (wrong.code, wrong.err) == (2, "error: islands.json: a plan of islands takes no --interval and --chart\n")


def test_plan_prints_it_and_keeps_to_days(run):
    pins = ("--tp", 1, "--pp", 1, "--microbatch-size", 1, "--schedule", "1f1b", "--zero-stage", 1, "--recompute", "none")
    words = ("plan", "lab/lab-slow-trunk", *pins, "--set", "links[0].bandwidth=100 Mbit/s", "--sync", "diloco=30,int8")
    seen = run(*words, "--tokens", "1B", "--days", 9)
    assert seen.code == 0, seen.err
    assert "Training on 1 B tokens" in seen.out and "by effective tokens" in seen.out
    late = run(*words, "--tokens", "1B", "--days", 0.01, "--time-limit", 1)
    assert (late.code, late.out) == (3, "")
    assert late.err.startswith("error: no plan with --sync diloco=30,int8 that was found trains 1 B tokens in 0.01 days, ")
