"""Stages that hold nothing and pass messages on: their time, memory, and what cannot run them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holmes_sim import exporters
from holmes_sim.torch_backend.supported import unsupported
from sim.analytic import plan_costs
from sim.analytic.evaluator import evaluate
from sim.engine.engine import simulate
from sim.kernels.memory import torch_bytes
from sim.plan.plan import Plan
from tests import builders
from tests.sim.ideal_machines import free_wires, idle_fleet


def chain(layers: tuple[int, ...], head: int = -1, **facts: Any) -> Plan:
    """A pipeline of one rank a stage, with free messages."""
    own: dict[str, Any] = {"microbatches": 1, "schedule": "1f1b"} | facts
    return builders.plan(free_wires(), pp=len(layers), layers=layers, head=head % len(layers), **own)


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "1f1b-deepspeed", "zb-h1"])
def test_a_stage_that_passes_messages_on_takes_no_time(schedule: str) -> None:
    """One microbatch, whose forwards and backwards come one after the other in any pipeline."""
    bare, passing = chain((4, 0), schedule=schedule), chain((4, 0, 0, 0), schedule=schedule)
    assert simulate(passing).step_s == pytest.approx(simulate(bare).step_s, rel=1e-9)


def test_its_messages_take_theirs() -> None:
    """Two stages that pass on have two activations and two gradients more than none has: 64 tokens of 96 values of 2 bytes."""
    machines = builders.fleet(builders.cluster(nodes=4, nics=(builders.nic(bandwidth=1e6, latency=0.0),)))
    steps = [
        simulate(builders.plan(machines, pp=len(layers), layers=layers, microbatches=1, schedule="1f1b")).step_s
        for layers in ((4, 0), (4, 0, 0, 0))
    ]
    assert steps[1] - steps[0] == pytest.approx(4 * 64 * 96 * 2 / 1e6, rel=1e-6)


@given(data=st.data())
def test_evaluator_and_closed_form_have_the_step_of_the_engine(data: st.DataObject) -> None:
    pp, dp = data.draw(st.integers(3, 6)), data.draw(st.sampled_from([1, 2]))
    before = data.draw(st.integers(1, pp - 2))
    layers = (*data.draw(st.lists(st.integers(1, 3), min_size=before, max_size=before)), *(0,) * (pp - before))
    schedule = data.draw(st.sampled_from(["1f1b", "gpipe", "1f1b-deepspeed", "zb-h1", "zb-h2"]))
    head = data.draw(st.integers(before + 1, pp - 1)) if schedule != "zb-h2" else pp - 1
    plan = builders.plan(
        data.draw(st.just(idle_fleet(data.draw, (1, pp, dp), 0.0))), 1, pp, dp, 1, data.draw(st.integers(1, 12)), layers,
        head=head, schedule=schedule, zero_stage=data.draw(st.integers(0, 2)), overlap_grad_reduce=data.draw(st.booleans()),
        overlap_param_gather=data.draw(st.booleans()), shape={"tied_embeddings": data.draw(st.booleans())},
    )  # fmt: skip
    assert any(map(plan.passes_on, range(pp)))
    step = simulate(plan).step_s
    assert evaluate([plan]) == pytest.approx([step], rel=1e-9)
    assert plan_costs.step_seconds(plan) <= step * (1 + 1e-9)


def test_its_memory_is_that_of_its_messages() -> None:
    """Four buffers of the activations of a microbatch, and torch's workspace; a stage behind the head has the latter."""
    plan = chain((4, 0, 0, 0), head=2)
    _, passing, _, behind = torch_bytes(plan)
    workload = plan.workload
    buffer = workload.seq_len * workload.model.hidden * workload.bytes_per_value * plan.config.microbatch_size
    assert passing - behind == pytest.approx(4 * buffer)
    assert behind == pytest.approx(plan.config.memory.workspace)


def test_megatron_lm_alone_is_known_to_pass_messages_on() -> None:
    """FlagScale runs such plans as Megatron-LM does."""
    plan = chain((4, 0, 0))
    refusing = [
        name for name in exporters.frameworks()
        if any(fault.startswith("stages[1].layers: it is empty before the head") for fault in exporters.unsupported(name, plan))
    ]  # fmt: skip
    assert sorted(refusing) == ["deepspeed", "holmes", "torchtitan"]
    assert not list(exporters.unsupported("megatron", plan))
    assert "stages[1].layers (a layer on each stage between embedding and head)" in tuple(unsupported(plan))
    assert not [fault for fault in unsupported(chain((4, 0))) if fault.startswith("stages")]
