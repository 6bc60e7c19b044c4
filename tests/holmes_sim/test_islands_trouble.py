"""Islands with faults: slow devices, weak and flapping links."""

from __future__ import annotations

import statistics
from dataclasses import replace

import pytest

from holmes_sim import islands_trouble
from holmes_sim.islands_trouble import trouble_islands
from sim.islands.prediction import predict
from sim.sync import Sync
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


def test_jitter_lengthens_steps_and_spreads_exchanges():
    """A rank that does not wait for others takes as long on average; exchanges vary by as much as the rate of the trunk."""
    found = trouble_islands(PLAN, jitter="20%", seeds=range(40))
    exchange = predict(PLAN)[1].exchange_s
    assert exchange > 0.9 * PERIOD  # of this plan the period is nearly that of its exchange
    assert found.mean_s == pytest.approx(PERIOD, rel=0.1)
    assert statistics.stdev(found.periods_s) == pytest.approx(0.2 * exchange, rel=0.35)
    assert trouble_islands(PLAN, jitter="20%", seeds=[3]).periods_s == found.periods_s[3:4]
    assert str(found.faults) == "jitter 20 %"


def test_the_noise_of_a_period_is_that_of_its_mean_step():
    """Steps of 1.1 times the usual ones on average, with a deviation of 0.2: over 100 steps 0.02."""
    hundred = replace(PLAN, sync=Sync("diloco", 100))
    drawn = [islands_trouble._noise_of(hundred, [(1.1, 0.2)], seed)[0] for seed in range(2000)]
    assert statistics.fmean(drawn) == pytest.approx(1.1, abs=0.002)
    assert statistics.stdev(drawn) == pytest.approx(0.02, rel=0.05)
