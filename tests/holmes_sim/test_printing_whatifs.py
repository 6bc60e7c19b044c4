"""The table of what-if: what is not known says so, sizes that gain nothing are one row, and 100 columns hold it."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console, RenderableType

from holmes_sim import printing
from holmes_sim.changes import Change
from holmes_sim.outcomes import Outcome
from holmes_sim.plan_numbers import PlanNumbers
from holmes_sim.whatif import WhatIf
from planner.placement.simulation import simulate_plan
from sim.plan.certificate import Certificate
from sim.plan.plan import Plan
from tests import builders as make

NODES = tuple(Change(f"c: {count} nodes, not 8", (("clusters.c.nodes", count),), True, "c: nodes") for count in (9, 10, 16))
MEMORY = tuple(Change(f"c: {gib} GiB of memory a device, not 80 GiB", (), True, "c: memory") for gib in (100, 160))


@pytest.fixture
def plan() -> Plan:
    """A plan with a proven gap of 10 %."""
    now = simulate_plan(make.plan(make.fleet(make.cluster("c", 2))))
    step = now.prediction.step_s
    proof = Certificate("feasible", step, 0.9 * step, 0.1, "closed form", False, None, (), ())
    return now.annotated(certificate=proof)


def planned(
    change: Change, gain: float, gap: float | None = 0.05, usd_per_h: float | None = None, how: str = "planned"
) -> Outcome:
    return Outcome(change, PlanNumbers(1.0, 1000.0, gap), gain, usd_per_h, how)


def shown(plan: Plan, *outcomes: Outcome) -> str:
    screen = Console(width=100, record=True, file=io.StringIO())
    screen.print(printing.what_if(WhatIf(plan, outcomes, 1.0)))
    return screen.export_text()


def lines_of(table: RenderableType) -> list[str]:
    """The lines of a table on a wide terminal."""
    screen = Console(width=200, record=True, file=io.StringIO())
    screen.print(table)
    return screen.export_text().splitlines()


def row(text: str, change: Change) -> str:
    (line,) = (line for line in text.splitlines() if line.startswith(change.name))
    return " ".join(line.removeprefix(change.name).split())


def test_a_gain_below_what_is_proved_is_not_known(plan):
    text = shown(plan, planned(NODES[2], 0.5), planned(Change("some", ()), 0.1), planned(Change("less", ()), -0.2))
    assert row(text, NODES[2]) == "1 s 1,000 +50.0% +57.9% new"
    assert row(text, Change("some", ())) == "1 s 1,000 not known +15.8% new"
    assert row(text, Change("less", ())) == "1 s 1,000 -20.0% -15.8% new"


def test_sizes_without_a_known_gain_are_one_row_the_largest(plan):
    nodes = [planned(change, gain) for change, gain in zip(NODES, (0.05, 0.2, 0.6), strict=True)]
    memory = [planned(change, 0.0, None, how=how) for change, how in zip(MEMORY, ("unused", "simulated"), strict=True)]
    text = shown(plan, *reversed(nodes), *memory)
    assert all(change.name in text for change in (*NODES, MEMORY[1]))
    assert MEMORY[0].name not in text
    assert "1 smaller sizes, whose gain is not known either, are not shown" in text
    assert row(text, MEMORY[1]) == "1 s 1,000 not known ? today's"


def test_the_best_change_is_one_whose_gain_is_known(plan):
    unknown, known = planned(Change("first", (("workload.seq_len", 1),)), 0.6), planned(NODES[2], 0.5)
    assert "--set clusters.c.nodes=16" in shown(plan, known)
    assert "--set" not in shown(plan, replace(unknown, gain=0.1))


def test_a_change_without_a_plan_has_its_reason_below(plan):
    none = Outcome(Change("too small", ()), None, None, None, "planned", "it does not fit")
    text = shown(plan, planned(NODES[0], 0.5), none)
    lines = [line.split() for line in text.splitlines() if line.startswith("too small")]
    assert lines == [["too", "small", "-", "-", "-", "-", "none"], ["too", "small:", "no", "plan:", "it", "does", "not", "fit"]]


def test_where_nothing_was_evaluated_there_is_no_table(plan):
    left = Outcome(NODES[0], None, None, None, "simulated", "the time limit was reached")
    text = shown(plan, left)
    assert "What if" not in text
    assert "1 of 1 changes were not evaluated in the time limit." in text


def test_a_table_with_costs_fits_100_columns(plan):
    long = Change("beijing-hpc: infiniband NICs of 800 Gbit/s, not 400 Gbit/s", (), True, "nics")
    text = shown(plan, planned(long, 0.5, usd_per_h=1234.5), planned(NODES[2], 0.4, usd_per_h=12.0))
    assert max(map(len, text.splitlines())) <= 100
    assert row(text, NODES[2]) == "1 s 1,000 +40.0% +47.4% +12.00 +333.3% new"
    assert "+1,234.50" in text
    assert f"Largest gain per cost: {NODES[2].name}." in text
