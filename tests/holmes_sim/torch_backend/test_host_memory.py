"""A run that this machine's memory cannot hold is refused before its ranks start."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holmes_sim.torch_backend.host_memory import (
    RANK_PROCESS,
    available_bytes,
    check_memory,
    computing_bytes,
    kept_activations,
    paced_bytes,
    training_state,
)
from holmes_sim.torch_backend.run_options import RunOptions
from sim.errors import HolmesError
from sim.plan.plan import Plan
from sim.units import GIBI
from sim.workload.adapter import Adapter
from tests.builders import cluster, fleet, plan

ON_CPUS = RunOptions(device="cpu")


def small(zero_stage: int = 0, dp: int = 2, **facts: Any) -> Plan:
    return plan(fleet(cluster(devices=4)), dp=dp, zero_stage=zero_stage, **facts)


def test_the_state_of_all_ranks_is_that_of_each_copy():
    """bf16 with gradients in fp32: 2 + 4 + 12 bytes a parameter; ZeRO 1 shards the 12, ZeRO 3 all."""
    of, parameters = small(), small().workload.model.parameters
    assert of.config.gradient_precision == "fp32"
    assert training_state(of) == 2 * 18 * parameters
    assert training_state(small(1)) == (2 * 6 + 12) * parameters
    assert training_state(small(3)) == pytest.approx(18 * parameters)
    piped = plan(fleet(cluster(devices=4)), tp=2, pp=2)
    assert training_state(piped) == 18 * piped.workload.model.parameters


@pytest.mark.parametrize(("zero_stage", "copies"), [(0, 2), (1, 2), (3, 1)])
def test_adapters_count_frozen_weights_of_layers(zero_stage: int, copies: int):
    of = small(zero_stage)
    model = of.workload.model
    found = training_state(replace(of, workload=replace(of.workload, adapter=Adapter(4))))
    assert found == copies * 2 * model.layers * model.layer_parameters


def test_activations_of_all_microbatches_in_flight_are_counted():
    """1F1B of two stages: the first one holds two microbatches, the second one holds one. Each has a layer of 96 hidden values,
    64 tokens a microbatch and bf16; with full recomputation a layer keeps its input alone."""
    piped = plan(fleet(cluster(devices=4)), pp=2, dp=2, microbatches=3, recompute="full")
    layers = piped.stages[0].layers
    assert kept_activations(piped) == 2 * (2 + 1) * layers * 64 * 96 * 2
    assert kept_activations(plan(fleet(cluster(devices=4)), pp=2, dp=2, microbatches=3)) > 10 * kept_activations(piped)


def test_a_run_that_does_not_fit_is_refused():
    of = small()
    needed = computing_bytes(of)
    assert needed == training_state(of) + kept_activations(of)
    check_memory([of], ON_CPUS, needed)
    text = f"weights, gradients, optimizer state and activations of 4 ranks take {2 * needed / GIBI:.3g} GiB at least, and "
    with pytest.raises(HolmesError) as told:
        check_memory([of, of], ON_CPUS, 1.9 * needed)
    assert str(told.value).startswith(text)


def test_paced_ranks_hold_a_buffer_for_each_size():
    """Two replicas of two stages of 297,408 and 297,600 parameters: gradients in fp32, weights that ZeRO 1 gathers in bf16, and
    messages of 64 tokens of 96 values in bf16, one to and one from the other stage."""
    of = plan(fleet(cluster(devices=4)), pp=2, dp=2, zero_stage=1, microbatches=3)
    sizes = [(4 + 2) * parameters + 2 * (64 * 96 * 2) for parameters in (297_408, 297_600)]
    assert paced_bytes(of) == 4 * RANK_PROCESS + 2 * sum(sizes)


def test_paced_ranks_that_do_not_fit_are_refused():
    of, paced = small(), replace(ON_CPUS, compute="paced")
    needed = paced_bytes(of)
    check_memory([of], paced, needed)
    with pytest.raises(HolmesError) as told:
        check_memory([of, of], replace(paced, device="auto"), 1.9 * needed)
    assert str(told.value) == (
        f"processes and buffers of messages and collectives of 4 ranks take {2 * needed / GIBI:.3g} GiB at least, and this "
        f"machine has {1.9 * needed / GIBI:.3g} GiB available; plan a smaller model (--model) or fewer devices (--set)"
    )


def test_some_memory_is_available():
    assert 2**28 < available_bytes() < 2**50
