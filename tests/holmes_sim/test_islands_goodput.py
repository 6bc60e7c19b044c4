"""Goodput of islands, with failures, and with leaves and returns."""

from __future__ import annotations

import pytest

from holmes_sim.islands_goodput import goodput_islands
from sim.errors import OptionError
from sim.islands.prediction import predict
from sim.sync import Sync
from tests.sim.islands.builders import islands_plan, machines

PLAN = islands_plan(machines(bandwidth=1e6), Sync("diloco", 100_000))


def test_goodput_of_islands():
    found = goodput_islands(PLAN, "60s", "10min", ("device:1000h",))
    assert [run.between for run in found.runs] == pytest.approx([1_800_000.0] * 2)  # two devices an island
    assert found.together.between == pytest.approx(900_000.0)
    assert found.goodput == pytest.approx(1 - 600 / 1_800_000, rel=1e-3)  # the restart, of every failure
    assert found.together.goodput < found.goodput
    assert found.tokens_per_s == pytest.approx(found.goodput * predict(PLAN)[1].tokens_per_s)
    with pytest.raises(OptionError, match="islands that exchange nothing are separate runs"):
        goodput_islands(islands_plan(machines(), Sync("independent")), "60s", "10min")


def test_failures_are_leaves_that_last_a_restart():
    found = goodput_islands(PLAN, "60s", "10min", ("device:1000h",), ("island:100h:2h",), 1.0, range(2)).elastic
    assert found is not None
    for one in found.leaving:
        assert 1 / one.every == pytest.approx((1 / 100 + 2 / 1000) / 3600)  # two devices an island
        assert one.away == pytest.approx((7200 / 100 + 600 * 2 / 1000) / (1 / 100 + 2 / 1000))
    assert found.together is not None
    assert found.together.between == pytest.approx(3600 / (2 / 100 + 4 / 1000))
    assert found.together.goodput < found.rate.goodput < goodput_islands(PLAN, "60s", "10min", ("device:1000h",)).goodput


def test_without_leaves_nothing_is_elastic():
    assert goodput_islands(PLAN, "60s", "10min").facts()["elastic"] is None
