"""Islands with faults: slow devices, weak and flapping links."""

from __future__ import annotations

import pytest

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
