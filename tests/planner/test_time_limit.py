"""The time limit is a safeguard: a plan does not depend on the speed of the machine, unless its certificate says so."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace

import pytest

from planner.costs.context import PlanningContext
from planner.request import Request, Wishes
from planner.strategies import certified
from planner.time_limit import TimeLimit
from sim.formats.planfile import to_json
from sim.hardware.cluster import Trunk
from sim.hardware.topology import Topology
from sim.plan.plan import Plan
from sim.workload.workload import Workload
from tests.builders import cluster, device, fleet, model, nic


@pytest.fixture
def planned_at(monkeypatch):
    """Seconds -> the certified plan of a small mixed fleet on a machine whose clock advances so far whenever it is read."""

    def plan(seconds_per_reading: float) -> Plan:
        readings = itertools.count()
        monkeypatch.setattr("planner.time_limit.time.monotonic", lambda: next(readings) * seconds_per_reading)
        fast = cluster("a", 2, 2, (nic(bandwidth=1e9),), device("fast", 2e10, 1e10))
        slow = cluster("b", 1, 2, (nic("ethernet", 1e7),), device("slow", 1e10, 1e10))
        joined = Trunk(("a", "b"), "ethernet", 1e7, 1e-3)
        fast = replace(fast, node=replace(fast.node, nics=(*fast.node.nics, nic("ethernet", 1e7))))
        machines = fleet(fast, slow, trunks=(joined,))
        workload = Workload(model(4), 4, 64, "bf16")
        request = Request(Topology("tiny", "", machines, workload, json.dumps({"name": "tiny"})), workload, Wishes())
        return certified.plan(request, PlanningContext(request))

    return plan


def test_a_slow_machine_gives_the_plan_of_a_fast_one(planned_at):
    fast, slow = planned_at(0.0), planned_at(1e-3)
    assert to_json(slow) == to_json(fast)
    assert fast.certificate is not None
    assert not fast.certificate.time_limit_reached


def test_a_plan_says_that_the_time_limit_ended_its_search(planned_at):
    cut = planned_at(30.0)
    assert cut.certificate is not None
    assert cut.certificate.time_limit_reached


def test_a_limit_is_reached_when_something_stops_for_it():
    infinite, over = TimeLimit(math.inf), TimeLimit(0.0)
    assert not infinite.is_up()
    assert not over.reached
    assert over.is_up()
    assert (infinite.reached, over.reached) == (False, True)


def test_a_reserve_and_a_least_time_move_the_limit(monkeypatch):
    monkeypatch.setattr("planner.time_limit.time.monotonic", lambda: 100.0)
    limit = TimeLimit(50.0)
    limit.reserve(20.0)
    assert limit.seconds_left == 30.0
    assert limit.at_least(5.0).seconds_left == 30.0
    assert limit.at_least(40.0).seconds_left == 40.0
    limit.reserve(30.0)
    assert limit.is_up()
    assert not limit.at_least(5.0).is_up()


def test_a_limit_that_leaves_too_little_is_reached():
    limit = TimeLimit(100.0)
    assert limit.leaves(50.0)
    assert not limit.reached
    assert not limit.leaves(200.0)
    assert limit.reached


def test_a_limit_is_sooner_within_a_statement_even_where_it_fails(monkeypatch):
    monkeypatch.setattr("planner.time_limit.time.monotonic", lambda: 100.0)
    limit = TimeLimit(50.0)
    with pytest.raises(KeyboardInterrupt), limit.sooner(20.0):
        assert limit.seconds_left == 30.0
        raise KeyboardInterrupt
    assert limit.seconds_left == 50.0
