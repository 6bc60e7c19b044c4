"""Islands with faults, an island that leaves, and their goodput."""

from __future__ import annotations

import pytest

from holmes_sim.islands_goodput import goodput_islands
from holmes_sim.islands_trouble import trouble_islands, without_island
from sim.errors import OptionError
from sim.islands.prediction import predict
from sim.sync import Sync
from tests.island_plans import islands
from tests.sim.islands.builders import islands_plan, machines

PLAN = islands_plan(machines(bandwidth=1e6), Sync("diloco", 10))
PERIOD = predict(PLAN)[1].period_s


def test_a_weak_trunk_doubles_the_exchange():
    found = trouble_islands(PLAN, degrade="100%:50%", seeds=[0])
    assert found.fault_free_s == pytest.approx(PERIOD)
    assert found.mean_s - PERIOD == pytest.approx(predict(PLAN)[1].exchange_s, rel=0.01)


def test_slow_devices_lengthen_inner_steps():
    found = trouble_islands(PLAN, stragglers="100%:2", seeds=[0, 1])
    inner = max(predict(PLAN)[1].inner_step_s)
    assert PERIOD < found.mean_s < PERIOD + 10 * inner * 1.01
    assert found.quantile_s(0.95) == max(found.periods_s) == found.periods_s[0]


def test_without_faults_nothing_changes():
    found = trouble_islands(PLAN, degrade="0%:50%", seeds=range(3))
    assert found.periods_s == pytest.approx([PERIOD] * 3)


def test_flaps_delay_exchanges():
    found = trouble_islands(PLAN, flaps=f"{PERIOD:.6f}s:{PERIOD:.6f}s", seeds=range(4))
    assert max(found.periods_s) > PERIOD


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


@pytest.mark.parametrize("text", ["1", "5@1h", "x@1h", "1@1", "@1h"])
def test_wrong_texts(text):
    with pytest.raises(OptionError, match="write the island and when it leaves, such as 1@2h"):
        without_island(PLAN, text)


def test_goodput_of_islands():
    found = goodput_islands(PLAN, "60s", "10min", ("device:1000h",))
    assert [run.between for run in found.runs] == pytest.approx([1_800_000.0] * 2)  # two devices an island
    assert found.together.between == pytest.approx(900_000.0)
    assert found.goodput == pytest.approx(1 - 600 / 1_800_000, rel=1e-3)  # the restart, of every failure
    assert found.together.goodput < found.goodput
    assert found.tokens_per_s == pytest.approx(found.goodput * predict(PLAN)[1].tokens_per_s)
    with pytest.raises(OptionError, match="islands that exchange nothing are separate runs"):
        goodput_islands(islands_plan(machines(), Sync("independent")), "60s", "10min")


def test_when_an_island_leaves_does_not_matter_but_for_its_place_in_a_period():
    plan = islands_plan(machines(3, bandwidth=1e6), Sync("diloco", 10))
    period = predict(plan)[1].period_s
    early, late = (without_island(plan, f"2@{(number + 0.5) * period:.9f}s") for number in (2, 40_000))
    assert late.waited == pytest.approx(early.waited, rel=1e-3)
    assert (late.before, late.after) == (early.before, early.after)


def test_others_that_do_not_wait_lose_nothing():
    """Not the 6e-14 s that rounding of the clock leaves."""
    assert without_island(islands(Sync("local-sgd", 30)), "0@2h").waited == 0.0
