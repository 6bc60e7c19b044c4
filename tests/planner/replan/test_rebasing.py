"""Plans of today on changed topologies: more nodes and memory leave the step as it is, other work has other microbatches."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holmes_sim import changes, commands
from planner.placement.simulation import fits, simulate_plan, step
from planner.replan.rebasing import rebased
from planner.request import Request, Wishes
from planner.search.fitting import fitting
from sim.formats.edits import edited
from sim.plan.plan import Plan
from tests import builders as make

FLEETS = ("lab/lab-hybrid-nics", "lab/lab-mixed-devices", "lab/lab-three-clusters", "holmes-hybrid-4", "mixed-h100-a100-v100")


def plan_on(name: str) -> Plan:
    topology = commands.load(name)
    assert topology.workload is not None
    plan = fitting(Request(topology, topology.workload, Wishes(), 1e9), "test")
    assert plan is not None
    return simulate_plan(plan)


@pytest.mark.parametrize("name", FLEETS)
def test_more_nodes_and_more_memory_leave_the_step_of_the_present_plan_as_it_is(name):
    now = plan_on(name)
    more = [change for change in changes.menu(now.topology) if change.family.endswith((": nodes", ": memory"))]
    assert more
    for change in more:
        after = rebased(now, change.made(now.topology), now.workload)
        assert after is not None and fits(after)
        assert step(after) == step(now)
        assert step(simulate_plan(after)) == pytest.approx(step(now), rel=1e-9), change.name


def test_what_a_plan_uses_is_simulated_where_it_is_faster():
    now = plan_on("holmes-hybrid-4")
    devices = [change for change in changes.menu(now.topology) if "h100-sxm5-80gb, not" in change.name]
    for change in devices:
        after = rebased(now, change.made(now.topology), now.workload)
        uses = change.name.split(":")[0] in {device.cluster for device in now.placement}
        assert step(after) == step(simulate_plan(after))
        assert (step(after) < step(now)) is uses


def test_on_its_own_topology_a_plan_is_itself():
    now = plan_on("lab/lab-hybrid-nics")
    again = rebased(now, now.topology, now.workload)
    assert (again.config, again.placement, again.groups, step(again)) == (now.config, now.placement, now.groups, step(now))


def test_microbatches_follow_the_batch_and_must_be_whole():
    now = simulate_plan(make.plan(make.fleet(make.cluster("c", 4)), pp=2, dp=2, microbatches=(4, 2)))
    half = rebased(now, now.topology, replace(now.workload, global_batch_size=now.workload.global_batch_size // 2))
    assert half.config.num_microbatches == (2, 1)
    assert step(half) < step(now)
    assert rebased(now, now.topology, replace(now.workload, global_batch_size=now.workload.global_batch_size // 4)) is None


def test_where_a_device_is_gone_or_memory_does_not_suffice_there_is_no_plan():
    now = plan_on("holmes-hybrid-4")
    used = now.placement[0].cluster
    fewer = edited(edited(now.topology, {"links": []}), {f"clusters.{used}": None})
    assert rebased(now, fewer, now.workload) is None
    small = edited(now.topology, {f"clusters.{used}.node.devices.type.memory": "1 GiB"})
    assert rebased(now, small, now.workload) is None
