"""A NIC carries the messages, the gradients and the weights of a stage, one after the other or not."""

from __future__ import annotations

import pytest
from hypothesis import given

from planner.bounds.deadline_test import DeadlineTest
from planner.bounds.ordered_stages import OrderedStages
from planner.bounds.shared_nics import least_seconds, nic_loads
from planner.costs.context import PlanningContext
from planner.costs.node_classes import node_classes
from planner.placement.simulation import simulate_plan, step
from planner.request import Request
from planner.space.shape import Shape
from sim.kernels import payloads
from tests import builders as make
from tests.planner.builders import Drawn, drawn_plans, on_one_cluster, shape

MESSAGE = 64 * 96 * 2 / 1e6
"""Seconds of a message of 64 tokens of 96 values of 2 bytes over the NIC of a node."""


def six_nodes(devices: int = 1) -> Request:
    """Six nodes, six sequences."""
    return on_one_cluster(layers=8, batch=6, nodes=6, devices=devices, nics=(make.nic("ethernet", 1e6),))


def seconds(question: Request, one: Shape, role: str, layers: int) -> float:
    """The bound of a stage."""
    context, (cluster,) = PlanningContext(question), question.clusters()
    return least_seconds(context, one, nic_loads(context, one, cluster, (cluster,), "ethernet"), role, layers)


@pytest.mark.parametrize(
    ("role", "vpp", "messages"), [("middle", 1, 2), ("first", 1, 1), ("last", 1, 1), ("middle", 2, 4), ("last", 2, 3)]
)
def test_a_node_sends_all_messages_and_half_of_its_gradients_and_weights(role, vpp, messages):
    """Each of two replicas on nodes of their own reduces its gradients by scatter and gathers weights, half of all each."""
    question, one = six_nodes(), shape(dp=2, schedule="interleaved" if vpp > 1 else "1f1b", vpp=vpp)
    stage = question.workload, one.config(question.workload, 2), 2, role == "first", role == "last"
    moved = sum(dict(held(*stage))["dp"] for held in (payloads.gradient_bytes, payloads.parameter_bytes))
    assert seconds(question, one, role, 2) == pytest.approx(3 * messages * MESSAGE + moved / 2 / 1e6)


def test_stages_that_do_not_fill_nodes_have_no_load():
    assert seconds(six_nodes(), shape(), "middle", 2) == 0.0
    assert seconds(six_nodes(devices=4), shape(dp=2), "middle", 2) == 0.0


@given(drawn_plans(least_stages=2))
def test_no_step_is_below_the_load_of_the_nics_of_a_stage(drawn: Drawn):
    context, simulated = PlanningContext(drawn.request), step(simulate_plan(drawn.plan))
    names = list(dict.fromkeys(name for name, _ in drawn.stages))
    option_of = {option.cluster.name: option for option in node_classes(context, drawn.shape)}
    stages = OrderedStages(context, [option_of[name] for name in names], 1.01 * simulated)
    for index, (name, layers) in enumerate(drawn.stages):
        role = "first" if not index else "last" if index == len(drawn.stages) - 1 else "middle"
        loads = stages.nics[names.index(name)]
        assert least_seconds(context, drawn.shape, loads, role, layers) <= simulated * (1 + 1e-9)
    assert DeadlineTest(stages).within(simulated * (1 + 1e-9))
