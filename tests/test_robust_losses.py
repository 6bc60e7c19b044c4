"""The benchmark of aggregations: a wrong island spoils the mean, and not the median."""

from __future__ import annotations

import pytest

from sim import aggregation
from sim.sync import Sync

pytest.importorskip("torch")

from benchmarks import robust_losses, sync_losses


def test_every_aggregation_is_measured_with_as_many_islands_as_it_needs() -> None:
    assert sorted(robust_losses.AGGREGATIONS) == sorted(aggregation.names())
    assert all(aggregation.get(name).tolerated(robust_losses.ISLANDS) for name in robust_losses.AGGREGATIONS[1:])


def test_a_wrong_island_spoils_the_mean_only() -> None:
    losses = {
        (how, wrong): sync_losses.train(Sync("local-sgd", 2, aggregation=how), 3, 4, 0, 3, wrong)[0]
        for how in ("mean", "median")
        for wrong in (False, True)
    }
    assert losses["mean", True] > losses["mean", False] + 0.02
    assert losses["median", True] == pytest.approx(losses["median", False], abs=0.02)
