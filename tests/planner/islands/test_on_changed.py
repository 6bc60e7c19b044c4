"""Today's plans on a changed fleet: the same layouts, the strategy that the changed links ask for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.islands.allowed_sync import parse
from planner.islands.on_changed import on_changed
from planner.islands.search import SyncAnswer, plan_with_sync
from sim.formats.edits import edited
from sim.plan.islands import IslandsPlan
from tests.planner.islands.fleets import request, slow_trunk

ALLOWED = parse("streaming-diloco<=30,int8")


@pytest.fixture(scope="module")
def today() -> SyncAnswer:
    """The search at 100 Mbit/s."""
    return plan_with_sync(request(slow_trunk("100 Mbit/s")), ALLOWED)


def test_an_unchanged_fleet_has_todays_plan(today):
    row = on_changed(today, ALLOWED, request(slow_trunk("100 Mbit/s")))
    assert (row.sync, row.tokens_per_s) == (today.best.sync, pytest.approx(today.best.tokens_per_s))


def test_the_strategy_follows_the_link_and_layouts_stay(today):
    assert isinstance(today.best.plan, IslandsPlan)
    assert today.best.plan.sync.inner_steps == 30
    row = on_changed(today, ALLOWED, request(slow_trunk("100 Gbit/s")))
    assert isinstance(row.plan, IslandsPlan)
    assert row.plan.sync.inner_steps == 2
    assert row.speed > today.best.speed
    assert [one.config for one in row.plan.islands] == [one.config for one in today.best.plan.islands]


def test_islands_share_a_larger_batch(today):
    here = request(slow_trunk("100 Mbit/s"))
    twice = replace(here, workload=replace(here.workload, global_batch_size=64))
    row = on_changed(today, ALLOWED, twice)
    assert row.plan.batches == (32, 32)
    odd = replace(here, workload=replace(here.workload, global_batch_size=33))
    assert on_changed(today, ALLOWED, odd) is None


def test_what_has_no_memory_or_is_refused_is_no_plan(today):
    small = slow_trunk("100 Mbit/s")
    for name in ("east", "west"):
        small = edited(small, {f"clusters.{name}.node.devices.type.memory": "1 MiB"})
    assert on_changed(today, ALLOWED, request(small)) is None
    only = parse("streaming-diloco=30,int8")
    assert on_changed(today, only, request(slow_trunk("100 Mbit/s")), lambda plan: "no") is None
