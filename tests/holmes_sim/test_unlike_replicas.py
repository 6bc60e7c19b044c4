"""What `plan` says of unlike pipelines where a plan leaves devices idle."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from holmes_sim import targets, unlike_pipelines
from holmes_sim.unlike_replicas import allowed, beside, idle, remove_former, searched
from planner.limits import Limits
from planner.placement.ranks import build
from planner.placement.simulation import simulate_plan, step
from planner.request import Request, Wishes
from sim.formats import pipelinesfile
from sim.hardware.cluster import Trunk
from sim.plan.plan import Plan
from tests import builders as make
from tests.planner.builders import request, shape


def asked() -> Request:
    """Two fast nodes of one device, and one of three slow ones: nothing but pipelines of five stages uses all of them."""
    clusters = [
        make.cluster(name, nodes, devices, (make.nic(bandwidth=1e11),), make.device(f"chip-{name}", speed, 1e12))
        for name, nodes, devices, speed in (("a", 2, 1, 3e12), ("b", 1, 3, 1e12))
    ]
    machines = make.fleet(*clusters, trunks=(Trunk(("a", "b"), "infiniband", 1e11, 0.0),))
    return replace(request(machines, make.model(3), 16, seq_len=256), target=targets.any_framework())


@pytest.fixture(scope="module")
def fast_nodes() -> Plan:
    """Two replicas of one stage on the fast nodes; the slow one is idle, a third of the fleet's peak."""
    return simulate_plan(build(asked(), shape(1, 2), (("a", 3),), "by hand"))


def test_the_idle_node_saves_more_than_a_quarter_of_the_step(fast_nodes):
    """It takes a third of the batch; microbatches of several samples save the rest."""
    assert idle(asked(), fast_nodes) == pytest.approx(3 / 9)
    found = searched(asked(), fast_nodes, math.inf)
    assert found is not None
    assert found.saved > 0.25
    assert found.saved == pytest.approx(1 - found.step / step(fast_nodes))
    assert {device.cluster for device in found.plan.placement} == {"a", "b"}
    assert found.plan.workload.global_batch_size == 16
    assert "unlike pipelines (" in str(found)
    assert f"{found.saved:.0%} less time, without a bound" in str(found)


def test_its_simulation_confirms_its_prediction(fast_nodes):
    found = searched(asked(), fast_nodes, math.inf)
    assert found is not None
    run = unlike_pipelines.simulate_pipelines(found.plan)
    assert run.timeline.step_s == pytest.approx(found.step)
    assert run.confirmed


def test_its_file_is_beside_that_of_the_plan():
    assert str(beside(Path("out/plan.json"))) == "out/plan.pipelines.json"


def test_nothing_is_searched_where_it_was_not_asked_for(fast_nodes):
    free = asked()
    assert searched(replace(free, wishes=Wishes(tp=1)), fast_nodes, math.inf) is None
    assert searched(replace(free, limits=Limits(devices=2)), fast_nodes, math.inf) is None
    assert searched(replace(free, target=None), fast_nodes, math.inf) is None
    assert searched(free, fast_nodes, 0.0) is None


def test_nothing_is_searched_where_no_device_is_idle():
    every = simulate_plan(build(asked(), shape(), (("a", 1), ("a", 1), ("b", 1)), "by hand"))
    only = replace(asked(), machines=(("a", 2),))
    assert idle(asked(), every) == pytest.approx(2 / 9)
    assert idle(only, every) <= 0


@pytest.mark.parametrize(
    ("spent", "left", "seconds"), [(20.0, 30.0, 10.0), (1.0, 49.0, 2.0), (100.0, 100.0, 30.0), (49.0, 1.0, 1.0)]
)
def test_the_search_takes_half_as_long_as_the_plan(spent, left, seconds):
    assert allowed(spent, left) == seconds


def test_the_file_of_an_earlier_plan_is_removed(fast_nodes, tmp_path):
    found, plan = searched(asked(), fast_nodes, math.inf), tmp_path / "plan.json"
    assert found is not None
    beside(plan).write_text(pipelinesfile.to_json(found.plan), encoding="utf-8")
    assert remove_former(plan) == beside(plan)
    assert not beside(plan).exists()
    beside(plan).write_text("{}", encoding="utf-8")
    assert remove_former(plan) is None
    assert beside(plan).exists()
