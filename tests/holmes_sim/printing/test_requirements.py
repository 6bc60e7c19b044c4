"""The table of what each requirement costs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holmes_sim.conflicts import Price
from holmes_sim.printing.requirements import required
from sim.plan.prediction import Prediction
from tests import builders as make


@pytest.mark.parametrize(
    ("price", "without", "costs"),
    [
        (Price("tp 4", 8.0, bound_s=7.95), "8 s", "2 s of every step"),
        (Price("tp 4", 8.0, bound_s=6.0), "8 s", "at least 2 s, at most 4 s of every step"),
        (Price("tp 4", 10.5, bound_s=6.0), "10 s", "at most 4 s of every step"),
        (Price("tp 4", 10.0, bound_s=9.95), "10 s", "nothing"),
        (Price("tp 4", 8.0), "8 s", "2 s of every step"),
        (Price("tp 4", None, "not planned: no time left"), "-", "not planned: no time left"),
    ],
)
def test_a_cost_says_how_far_it_is_known(price: Price, without: str, costs: str) -> None:
    predicted = Prediction(10.0, 1.0, 1.0, 1.0, 0.5, (1.0,), 0.0, 0.0, 1.0)
    table = required(replace(make.plan(make.fleet(make.cluster())), prediction=predicted), [price])
    assert [list(column.cells) for column in table.columns] == [["tp 4"], [without], [costs]]
