"""The strategy megatron: ranks in order over all nodes, even layers."""

from __future__ import annotations

import pytest

from planner.request import Request
from sim.formats.topology import load
from tests.planner.builders import NO_LIMIT, plan_of
from tests.planner.strategies.fleets import on


@pytest.mark.parametrize("name", ["alike", "two speeds", "infiniband and roce", "three clusters"])
def test_megatron_uses_all_devices_in_order_and_even_layers(name):
    plan = plan_of(on(name), "megatron")
    machines = plan.fleet
    assert plan.config.world_size == machines.devices
    assert len({stage.layers for stage in plan.stages}) == 1
    in_order = [(c.name, node, index) for c in machines.clusters for node in range(c.nodes) for index in range(c.node.count)]
    assert [(d.cluster, d.node, d.index) for d in plan.placement] == in_order


def test_megatron_tries_powers_of_two_as_microbatch_sizes():
    """Among every divisor, more even layouts than are simulated would look alike, and the best would not be among them."""
    read = load("topologies/holmes-39b-4.yaml")
    plan = plan_of(Request(read, read.workload, time_limit=NO_LIMIT), "megatron")
    assert (plan.config.tp, plan.config.pp, plan.config.dp, plan.config.microbatch_size) == (4, 2, 4, 4)
