"""What notebooks and consoles show of results is one short line, not the content of every field."""

from __future__ import annotations

import pytest

import holmes_sim as hs
from tests import island_plans, two_rank_sets

RESULTS = {
    "islands": island_plans.islands,
    "prediction": lambda: hs.simulate_islands(island_plans.islands()),
    "goodput": lambda: hs.goodput_islands(island_plans.islands(), "60s", "10min"),
    "whole run of islands": lambda: hs.whole_run_islands(island_plans.islands(), "1T"),
    "faults": lambda: hs.trouble_islands(island_plans.islands(), stragglers="1%:1.5", seeds=range(2)),
    "whole run": lambda: hs.whole_run(island_plans.island("east"), "1T"),
    "launch": lambda: hs.export(island_plans.island("east"), "torchtitan"),
    "two sets of ranks": two_rank_sets.plan,
}


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_is_one_short_line(name):
    shown = repr(RESULTS[name]())
    assert len(shown) < 300, shown
    assert "\n" not in shown
    assert "(" not in shown.split(" ")[0], "the name of the class, and then fields"


def test_a_launch_lists_its_files():
    assert repr(hs.export(island_plans.island("east"), "csv")) == "4 files: README.md, ranks.csv, groups.csv, plan.json"
