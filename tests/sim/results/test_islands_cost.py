"""Money and energy of islands, by hand: inner steps, and devices that wait."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.plan.islands import IslandsPlan, IslandsPrediction
from sim.plan.prediction import Prediction
from sim.results import islands_cost
from sim.sync import Sync
from tests.sim.islands.builders import islands_plan, machines


def plan(price: float | None = 2.0, watts: float | None = 100.0, joules: float | None = 0.5) -> IslandsPlan:
    """Two islands of two devices: inner steps of 10 s and 8 s, of 0.5 J a token, ten of them in a period of 120 s."""
    where = machines()
    clusters = tuple(
        replace(one, node=replace(one.node, device=replace(one.node.device, price=price, watts=watts, idle_watts=20.0)))
        for one in where.clusters
    )
    found = islands_plan(replace(where, clusters=clusters), Sync("diloco", 10))
    numbers = Prediction(10.0, 1.0, 1.0, 1.0, 0.5, (1.0,), 0.0, 0.0, 1.0, 1.0, joules)
    found = replace(found, islands=tuple(replace(island, prediction=numbers) for island in found.islands))
    rate = 10 * found.workload.tokens / 120
    return found.annotated(IslandsPrediction(120.0, (10.0, 8.0), 20.0, 20.0, (0.0, 20.0), rate, 0.3))


def test_all_nodes_are_rented_all_the_time():
    found = plan()
    assert islands_cost.rent(found) == 4 * 2.0
    assert islands_cost.rent(found.islands[0]) == 2 * 2.0
    assert islands_cost.usd_per_token(found) == pytest.approx(8.0 * 120 / (10 * found.workload.tokens))
    assert islands_cost.usd_per_token(plan(price=None)) is None


def test_waiting_devices_draw_their_idle_watts():
    """Of 120 s one island waits 20 s, the other 40 s, each with two devices of 20 W."""
    found = plan()
    trained = 10 * found.workload.tokens
    assert islands_cost.joules_per_token(found) == pytest.approx((0.5 * trained + 2 * 20.0 * (20 + 40)) / trained)
    assert islands_cost.joules_per_token(plan(joules=None)) is None
