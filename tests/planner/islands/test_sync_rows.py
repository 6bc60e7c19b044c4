"""Rows of sync strategies: what each gives with the same islands."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.islands import sync_rows
from planner.placement.simulation import simulate_plan
from sim.islands.prediction import predict
from sim.islands.token_worth import EXACT
from sim.kernels import memory
from sim.plan.islands import IslandsPlan
from sim.sync import Sync
from tests.builders import device
from tests.sim.islands.builders import cluster, fleet, islands_plan, machines, nic

PARTITION = (("a",), ("b",))


def rows(where, *settings: Sync):
    islands = tuple(map(simulate_plan, islands_plan(where, Sync("every-step")).islands))
    return [row for _, row in sync_rows.rows(PARTITION, islands, enumerate(settings))]


def test_a_row_is_the_prediction_of_its_plan():
    settings = Sync("every-step"), Sync("diloco", 30, compression="int8"), Sync("streaming-diloco", 4, 1, 2), Sync("co2", 4)
    for row in rows(machines(bandwidth=1e6), *settings):
        assert isinstance(row.plan, IslandsPlan)
        assert row.plan.prediction == predict(row.plan)[1]
        assert row.tokens_per_s == row.plan.prediction.tokens_per_s
        assert row.islands == PARTITION


def test_worth_and_effective_tokens():
    exact, unknown = rows(machines(bandwidth=1e6), Sync("every-step"), Sync("co2", 4))
    assert (exact.worth, exact.effective, exact.price) == (EXACT, exact.tokens_per_s, "exact")
    assert (unknown.worth, unknown.effective, unknown.price) == (None, None, "bounded")


def test_islands_that_nothing_joins_have_no_rows():
    assert rows(fleet(*machines().clusters), Sync("every-step"), Sync("diloco", 30)) == []
    assert len(rows(fleet(*machines().clusters), Sync("independent"))) == 1


def test_error_feedback_must_fit_the_device():
    """Error feedback takes 4 bytes a parameter, over two ranks; this device has room for a kilobyte."""
    where = machines()
    island = islands_plan(where, Sync("every-step")).islands[0]
    small = device(memory=(max(memory.peak_memory(island)) + 1e3) / (1 - island.topology.memory_headroom))
    nodes = [cluster(name, 1, 2, (nic("ethernet", 1e12),), small) for name in "ab"]
    settings = [Sync(name, compression=how) for how in ("int8", "top-k=1%") for name in ("every-step", "diloco")]
    found = rows(fleet(*nodes, trunks=where.trunks), *settings)
    assert [row.sync for row in found] == ["every-step, int8", "diloco, int8", "diloco, top-k=1%"]


def test_outer_state_must_fit_the_memory_of_hosts_where_it_is_known():
    """Each island is a host of two devices; DiLoCo keeps 8 bytes a parameter, every-step nothing."""
    where = machines()
    state = 8 * islands_plan(where, Sync("diloco", 30)).workload.model.parameters
    settings = Sync("every-step"), Sync("diloco", 30)
    for room, found in ((1.01, ["every-step", "diloco"]), (0.99, ["every-step"])):
        hosts = [replace(one, node=replace(one.node, host_memory=room * state)) for one in where.clusters]
        assert [row.plan.sync.strategy for row in rows(fleet(*hosts, trunks=where.trunks), *settings)] == found


def test_an_exact_plan_is_one_island():
    plan = simulate_plan(islands_plan(machines(), Sync("every-step")).islands[0])
    row = sync_rows.of_plan(plan)
    assert plan.prediction is not None
    assert (row.islands, row.sync, row.effective) == ((("a",),), "exact", pytest.approx(plan.prediction.tokens_per_s))
