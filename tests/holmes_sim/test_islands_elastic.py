"""Islands that leave and come back: what is asked, and what is simulated."""

from __future__ import annotations

import math

import pytest

from holmes_sim.islands_elastic import LEAST_SEEDS, PERIODS, SEEDS, Failures, _affordable, elastic_islands
from sim.errors import OptionError
from sim.islands.prediction import predict
from sim.results.goodput import Run
from sim.sync import Sync
from tests.sim.islands.builders import islands_plan, machines

PLAN = islands_plan(machines(bandwidth=1e6), Sync("diloco", 100_000))


def test_simulated_runs_agree_with_the_closed_form():
    found = elastic_islands(PLAN, ("island:4h:30min",), days=6.0, seeds=range(8))
    spread = math.sqrt(sum((one - found.mean) ** 2 for one in found.simulated) / 7 / 8)
    assert found.mean == pytest.approx(found.rate.useful, abs=4 * spread)
    assert spread < 0.03 * found.rate.full
    assert found.rate.full == pytest.approx(predict(PLAN)[1].tokens_per_s)
    assert found.together is None


def test_a_synchronous_run_waits_until_all_are_back():
    """Two islands that leave every 100 h each for 2 h, without checkpoints and restarts: 1 / (1 + 2 h / 50 h) of the time."""
    runs = (Run({"device": 1}, {"device": 1e12}, 0.0, 0.0, 1.0),) * 2
    together = Run({"device": 2}, {"device": 1e12}, 1e-3, 0.0, 1.0)
    found = elastic_islands(PLAN, ("island:100h:2h",), Failures(runs, together), 1.0, range(1))
    assert found.together is not None
    assert found.together.goodput == pytest.approx(1 / (1 + 2 / 50), rel=1e-3)
    assert found.facts()["synchronous_goodput"] == found.together.goodput


def test_islands_that_exchange_nothing_are_refused():
    with pytest.raises(OptionError, match="islands that exchange nothing do not notice that one leaves"):
        elastic_islands(islands_plan(machines(), Sync("independent")), ("island:100h:2h",))


def test_fewer_and_shorter_runs_are_simulated_where_periods_are_not_folded():
    plan = islands_plan(machines(bandwidth=1e6), Sync("co2", 100_000))
    predicted = predict(plan)[1]
    many = PERIODS * predicted.period_s
    assert _affordable(plan, many / 10.01, predicted.tokens_per_s) == (many / 10.01, range(10))
    assert _affordable(plan, many / 1000, predicted.tokens_per_s) == (many / 1000, range(SEEDS))
    assert _affordable(plan, many, predicted.tokens_per_s) == (pytest.approx(many / LEAST_SEEDS), range(LEAST_SEEDS))
    assert _affordable(PLAN, many, predicted.tokens_per_s) == (many, range(SEEDS))
