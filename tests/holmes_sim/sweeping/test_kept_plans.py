"""In a sweep with islands, a scenario is no slower than another one whose plan it can have, and says whose plan it has."""

from __future__ import annotations

from typing import Any

import pytest

from holmes_sim import commands
from holmes_sim.sweeping import study, table
from holmes_sim.sweeping.kept_plans import with_kept_plans
from holmes_sim.sweeping.study import Study
from holmes_sim.sweeping.worker import Row

BANDWIDTH, BATCH = "links[0].bandwidth", "workload.global_batch_size"


def studied(vary: dict[str, list[Any]], **plan: Any) -> Study:
    return study.study_of(commands.load("lab/lab-slow-trunk"), vary, (), plan)


def row(speed: float, worth: float | None = 1.0, gap: float | None = 0.5) -> Row:
    effective = None if worth is None else speed * worth
    numbers = {"tokens_per_s": speed, "token_worth": worth, "effective_tokens_per_s": effective, "sync": "diloco 8"}
    return {"status": "planned", "gap": gap, "planning_s": 1.0, **numbers}


def kept(of: Study, *rows: Row | None) -> list[tuple[float | None, str | None]]:
    """(tokens/s, whose plan) of each row."""
    return [(one.get("tokens_per_s"), one.get("plan_of")) if one else (None, None) for one in with_kept_plans(of, rows)]


def test_a_wider_link_is_no_slower():
    of = studied({BANDWIDTH: ["2 Gbit/s", "500 Mbit/s", "1 Gbit/s"]}, sync="any")
    assert kept(of, row(8.0), row(9.0), row(7.0)) == [
        (9.0, f"{BANDWIDTH} 500 Mbit/s"), (9.0, None), (9.0, f"{BANDWIDTH} 500 Mbit/s"),
    ]  # fmt: skip
    assert kept(of, row(9.0), row(8.0), row(8.5)) == [(9.0, None), (8.0, None), (8.5, None)]


def test_islands_may_have_the_exact_plan_and_not_the_other_way_round():
    of = studied({"plan.sync": ["exact", "any", "diloco=8"]})
    assert kept(of, row(9.0), row(8.0), row(7.0)) == [(9.0, None), (9.0, "plan.sync exact"), (7.0, None)]
    assert kept(of, row(7.0), row(8.0), row(9.0)) == [(7.0, None), (8.0, None), (9.0, None)]


def test_plans_are_compared_by_effective_tokens():
    of = studied({"plan.sync": ["exact", "any"]})
    assert kept(of, row(9.0), row(12.0, worth=0.5)) == [(9.0, None), (9.0, "plan.sync exact")]
    assert kept(of, row(9.0), row(12.0, worth=0.9)) == [(9.0, None), (12.0, None)]


def test_the_gap_is_of_the_own_search():
    of = studied({"plan.sync": ["exact", "any"]})
    assert with_kept_plans(of, [row(9.0, gap=0.1), row(8.0, gap=0.5)])[1]["gap"] == pytest.approx(7 / 16)
    assert with_kept_plans(of, [row(9.0), row(8.0, worth=None)])[1]["gap"] is None


def test_what_else_differs_or_has_no_plan_stays():
    none = {"status": "wrong", "reason_if_none": "no"}
    assert kept(studied({BATCH: [32, 64]}, sync="any"), row(9.0), row(8.0)) == [(9.0, None), (8.0, None)]
    assert kept(studied({"plan.pp": [1, 2]}, sync="any"), row(9.0), row(8.0)) == [(9.0, None), (8.0, None)]
    of = studied({BANDWIDTH: ["1 Gbit/s", "2 Gbit/s"]}, sync="any")
    assert kept(of, row(9.0), none) == [(9.0, None), (None, None)]
    assert kept(of, row(9.0), None) == [(9.0, None), (None, None)]
    assert kept(of, row(9.0), {"status": "infeasible", "reason_if_none": "no"})[1] == (9.0, f"{BANDWIDTH} 1 Gbit/s")


def test_without_islands_rows_are_what_was_found():
    of = studied({BANDWIDTH: ["1 Gbit/s", "2 Gbit/s"]})
    assert kept(of, row(9.0), row(8.0)) == [(9.0, None), (8.0, None)]
    assert [one["plan_of"] for one in table.rows(of, [row(9.0), row(8.0)])] == [None, None]
