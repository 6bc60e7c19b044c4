"""Cost and energy as objectives: machines that are not worth it are left out, bounds hold, a front has no dominated row."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.bounds.objectives import check, dominates, front, known, least, value
from planner.costs.context import PlanningContext
from sim.errors import OptionError
from sim.plan.prediction import OBJECTIVES, Prediction
from tests.planner.priced_fleet import two_clusters


def test_the_bound_is_the_work_of_the_layers_at_the_least_price_of_a_flop():
    """8 samples of 64 tokens through 8 layers of width 96: 72 s h^2 (1 + 3.5/3 s/12h) FLOPs each (an attention's backward is
    2.5 forwards), at 4e9 FLOP/s for 1 USD/s and 100 W; passes through memory add the rest."""
    flops = 8 * 8 * 72 * 64 * 96**2 * (1 + 3.5 / 3 * 64 / 12 / 96)
    usd, joules = least(PlanningContext(two_clusters(size=8)), ("cost", "energy"))
    assert usd == pytest.approx(flops / 4e9 / (8 * 64), rel=5e-3)
    assert joules == pytest.approx(100 * usd, rel=1e-12)


@given(st.lists(st.tuples(*[st.integers(1, 4)] * 3), min_size=1, max_size=12))
def test_a_front_is_what_nothing_dominates(numbers):
    plans = [Candidate(*row) for row in numbers]
    chosen = [tuple(value(plan, name) for name in OBJECTIVES) for plan in front(plans, tuple(OBJECTIVES))]
    assert chosen == sorted({row for row in numbers if not any(dominates(other, row) for other in numbers)})


class Candidate:
    """A plan as the front sees it: its prediction."""

    def __init__(self, *numbers: float) -> None:
        self.prediction = Prediction(numbers[0], 0, 0, 0, 0, (), 0, 0, 0, *numbers[1:])


def test_one_row_dominates_another_if_it_is_nowhere_larger_and_somewhere_smaller():
    assert dominates((1, 2), (1, 3))
    assert not dominates((1, 2), (1, 2))
    assert not dominates((1, 2), (0, 3))


def test_a_device_without_a_price_is_named():
    question = two_clusters({"fast": {"price": 1.0, "watts": 100.0}, "slow": {"watts": 100.0}})
    assert known(question) == ("step-time", "energy")
    with pytest.raises(OptionError) as raised:
        check(question, "cost")
    assert str(raised.value) == (
        "objective cost: no price known of slow of cluster slow; give it in the topology, "
        "clusters.slow.node.devices.price: 2.50 USD/h"
    )
