"""Messages of a pipeline that hold their receivers, and calls of hosts for messages: engine, evaluator and closed form."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.analytic import plan_costs
from sim.analytic.evaluator import evaluate
from sim.analytic.recurrence import steps
from sim.engine.compiled import Compiler
from sim.engine.engine import simulate
from sim.engine.step_times import StepTimes
from sim.engine.symmetry import fold
from sim.errors import NotModelled
from sim.formats import documents
from sim.formats.stack_facts import StackConstants, written_facts
from sim.hardware.stack import DEFAULT, Stack
from sim.kernels.launches import message_seconds, stage_message_seconds
from sim.plan.plan import Plan
from tests import builders
from tests.builders import any_plan
from tests.sim.analytic.candidate_steps import candidate
from tests.sim.analytic.candidate_steps import step as candidate_step
from tests.sim.analytic.test_evaluator import plans_without_contention
from tests.sim.ideal_machines import free_wires

CALLS = 24, 46, 12, 24


def waiting(plan: Plan, held: bool, calls: tuple[int, int, int, int] = (0, 0, 0, 0), launch: float = 3e-3) -> Plan:
    """The plan with software whose messages hold receivers, or whose hosts make calls for them."""

    def slow(one: Any) -> Any:
        device = replace(one.node.device, message_calls=calls, launch=launch if any(calls) else one.node.device.launch)
        return replace(one, node=replace(one.node, device=device))

    machines = replace(plan.fleet, clusters=tuple(map(slow, plan.fleet.clusters)))
    topology = replace(plan.topology, fleet=machines)
    return replace(plan, config=replace(plan.config, held_receivers=held), topology=topology)


def test_calls_of_a_message_take_their_share_of_the_launches_of_a_layer() -> None:
    """A host that takes 3 ms for the 30 launches of a layer takes 0.1 ms for a call."""
    device = replace(builders.device("d", 1e12), launch=3e-3, message_calls=(1, 2, 5, 7))
    ends = [message_seconds(device, way, is_receiver) for way in "FB" for is_receiver in (False, True)]
    assert ends == pytest.approx([1e-4, 2e-4, 5e-4, 7e-4])

    config = builders.plan(free_wires(), pp=2, microbatches=2, layers=(1, 1), schedule="1f1b").config

    def of(receives: bool, sends: bool, schedule: str = "1f1b") -> tuple[float, ...]:
        devices = [device, replace(device, launch=1e-3)]
        return stage_message_seconds(devices, replace(config, schedule=schedule), receives, sends)

    assert of(receives=True, sends=True) == pytest.approx((2e-4, 7e-4, 1e-4, 5e-4))
    assert of(receives=False, sends=True) == pytest.approx((0.0, 7e-4, 1e-4, 0.0)), "the first stage"
    assert of(receives=True, sends=False) == pytest.approx((2e-4, 0.0, 0.0, 5e-4)), "the last stage"
    assert of(receives=True, sends=True, schedule="zb-h1") == (0.0, 0.0, 0.0, 0.0), "messages overlap compute"


def test_a_message_that_arrived_early_holds_its_receiver_for_as_long_as_it_travelled() -> None:
    """Two stages, forwards of 1 and backwards of 2 s, messages of 0.5 s. The second activation arrives at 3 s and
    holds the last stage from 5 to 5.5 s. The other messages are waited for longer than they travel."""
    seconds = {"forward": 1.0, "inputs": 2.0, "forward_compute": 1.0, "inputs_compute": 2.0, "ahead": 0.5, "back": 0.5}
    assert candidate_step("1f1b", 2, 2, **seconds) == pytest.approx(10.5)
    held = replace(candidate("1f1b", 2, 2, **seconds), holds_receivers=True)
    assert steps(held).tolist() == pytest.approx([11.0])


@given(data=st.data(), held=st.booleans(), calls=st.sampled_from([(0, 0, 0, 0), CALLS]))
def test_the_evaluator_has_the_step_of_the_engine(data: st.DataObject, held: bool, calls: tuple[int, int, int, int]) -> None:
    plan = waiting(data.draw(plans_without_contention()), held, calls)
    assert evaluate([plan]) == pytest.approx([simulate(plan).step_s], rel=1e-9)


@given(data=st.data(), held=st.booleans(), calls=st.sampled_from([(0, 0, 0, 0), CALLS]))
def test_the_closed_form_is_never_longer_than_the_engine(
    data: st.DataObject, held: bool, calls: tuple[int, int, int, int]
) -> None:
    plan = waiting(data.draw(plans_without_contention()), held, calls)
    assert plan_costs.step_seconds(plan) <= simulate(plan).step_s * (1 + 1e-9)


@given(data=st.data(), held=st.booleans())
def test_waits_for_messages_never_shorten_a_step_on_an_idle_network(data: st.DataObject, held: bool) -> None:
    plan = data.draw(plans_without_contention())
    before = simulate(plan).step_s
    assert simulate(waiting(plan, held, (0, 0, 0, 0) if held else CALLS, 1e-9)).step_s >= before * (1 - 1e-6)


def test_schedules_that_overlap_messages_hold_no_receiver() -> None:
    for schedule, changes in (("1f1b", True), ("gpipe", True), ("zb-h1", False), ("interleaved", False)):
        vpp = 2 if schedule == "interleaved" else 1
        layers = (1,) * (2 * vpp)
        card = builders.nic(bandwidth=1e6)
        machines = builders.fleet(builders.cluster(nodes=2, nics=(card,)))
        plan = builders.plan(machines, pp=2, vpp=vpp, microbatches=4, layers=layers, schedule=schedule)
        assert (simulate(waiting(plan, True)).step_s > simulate(plan).step_s * (1 + 1e-6)) is changes, schedule


@given(data=st.data())
def test_quick_simulations_know_the_calls_and_leave_held_receivers_to_the_engine(data: st.DataObject) -> None:
    plan = waiting(data.draw(any_plan(ranks=8)), False, CALLS)
    compiler, programs = Compiler(fold(plan)), dict[int, Any]()
    try:
        for pp_rank in range(plan.config.pp):
            programs |= compiler.programs(plan, pp_rank)
    except NotModelled:
        return
    quick = StepTimes(compiler).seconds([programs[index] for index in range(len(programs))])
    assert quick == pytest.approx(simulate(plan).step_s, rel=1e-9)


def test_quick_simulations_refuse_held_receivers() -> None:
    plan = waiting(builders.plan(free_wires(), pp=2, microbatches=2, layers=(1, 1), schedule="1f1b"), True)
    with pytest.raises(NotModelled, match="hold their receivers"):
        Compiler(fold(plan)).programs(plan, 0)


def test_a_stack_file_says_both() -> None:
    text = "name: ours\nheld_receivers: true\nmessage_calls: [24, 46, 12, 24]\nfitted: {}\n"
    stack = documents.check(documents.parse("ours.yaml", text), StackConstants).stack()
    assert isinstance(stack, Stack)
    assert (stack.held_receivers, stack.message_calls) == (True, CALLS)
    assert (DEFAULT.held_receivers, DEFAULT.message_calls) == (False, (0, 0, 0, 0))
    assert written_facts(stack)["message_calls"] == [24, 46, 12, 24]
    assert "message_calls" not in written_facts(DEFAULT)
