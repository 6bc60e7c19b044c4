"""An island that leaves, and comes back."""

from __future__ import annotations

import pytest

from holmes_sim.islands_leaving import without_island
from sim.errors import OptionError
from sim.islands.prediction import predict
from sim.sync import Sync
from tests.island_plans import islands
from tests.sim.islands.builders import islands_plan, machines

PLAN = islands_plan(machines(bandwidth=1e6), Sync("diloco", 10))
PERIOD = predict(PLAN)[1].period_s


def test_an_island_leaves_while_the_others_exchange():
    exchange = PERIOD * 0.98  # inner steps are short here: this is in the exchange of the second period
    found = without_island(PLAN, f"1@{PERIOD + exchange}s")
    assert found.waited == pytest.approx(10.0 + exchange, abs=0.1 * PERIOD)  # the exchange so far, and the timeout
    assert found.after > found.before  # the other need not exchange anything any more


def test_three_islands_go_on_as_two():
    plan = islands_plan(machines(3, bandwidth=1e6), Sync("diloco", 10))
    found = without_island(plan, "2@1s")
    rest = islands_plan(machines(3, bandwidth=1e6), Sync("diloco", 10))
    two = type(rest)(rest.sync, rest.islands[:2], rest.made_by)
    assert found.before == pytest.approx(predict(plan)[1].tokens_per_s)
    assert found.after == pytest.approx(predict(two)[1].tokens_per_s)


@pytest.mark.parametrize("text", ["1", "x@1h", "1@1", "@1h", "1@1h:", "1@1h:2"])
def test_wrong_texts(text):
    with pytest.raises(OptionError, match="write the island and when it leaves, such as 1@2h, with the time away"):
        without_island(PLAN, text)


@pytest.mark.parametrize("text", ["2@1h", "-1@1h:2h"])
def test_an_island_that_the_plan_lacks(text):
    with pytest.raises(OptionError, match=r"the plan has no island -?\d; its islands are 0 to 1$"):
        without_island(PLAN, text)


def test_when_an_island_leaves_does_not_matter_but_for_its_place_in_a_period():
    plan = islands_plan(machines(3, bandwidth=1e6), Sync("diloco", 10))
    period = predict(plan)[1].period_s
    early, late = (without_island(plan, f"2@{(number + 0.5) * period:.9f}s") for number in (2, 40_000))
    assert late.waited == pytest.approx(early.waited, rel=1e-3)
    assert (late.before, late.after) == (early.before, early.after)


def test_others_that_do_not_wait_lose_nothing():
    """Not the 6e-14 s that rounding of the clock leaves. The island leaves in the first half of a period, amid inner steps."""
    plan = islands(Sync("local-sgd", 30))
    assert without_island(plan, f"0@{118.2 * predict(plan)[1].period_s}s").waited == 0.0


def test_an_island_that_is_back_gets_a_live_checkpoint():
    """16 bytes a parameter over a link of 1e6 bytes per second, and a second for the ring of two."""
    found = without_island(PLAN, f"1@{0.1 * PERIOD}s:{3.3 * PERIOD}s").back
    assert found is not None
    assert (found.source, found.away) == (0, pytest.approx(3.3 * PERIOD))
    assert found.checkpoint == 16 * PLAN.workload.model.parameters
    assert found.waited == pytest.approx(found.checkpoint / 1e6 + 1.0)
    assert without_island(PLAN, "1@2h").facts()["back"] is None
