"""The work of devices whose stages end in time: by hand. `test_leaving_nodes` and `test_unlike_pipelines` try plans."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from planner.bounds.pipeline_modes import Mode, Modes, configuration
from planner.bounds.timely_stages import most_layers, stages_seconds
from planner.request import Request
from sim.kernels import memory
from tests.planner.pipelines.fleets import two_kinds


def every(*modes: Mode) -> Modes:
    """The same modes on both clusters."""
    return {"a": modes, "b": modes}


def one(size: int, head: float = 0.0, tp: int = 1) -> Mode:
    """A mode whose layers take a second for the forward, for the gradients of inputs and for those of weights of a sample."""
    return Mode(tp, 1, size, (3.0 * size, 0.0, head * size), size, size)


def test_many_microbatches_take_their_work():
    """Three layers of eight samples on four devices: six each, such as three microbatches of two layers."""
    assert stages_seconds(two_kinds(), every(one(1))) == pytest.approx(18.0)
    assert stages_seconds(two_kinds(batch=7), every(one(1))) == pytest.approx(18.0)  # 21 are not four times five


def test_the_head_counts_as_half_a_layer():
    """28 in all, and seven on each device: two microbatches of three layers and the head."""
    assert stages_seconds(two_kinds(), every(one(1, head=1.5))) == pytest.approx(21.0)


def test_one_microbatch_passes_all_layers():
    """It takes 16 s on each layer before the gradients of weights, which are those of one layer on three of the devices."""
    assert stages_seconds(two_kinds(), every(one(8))) == pytest.approx(48.0)


def test_microbatches_follow_one_another():
    """Two of four samples on each of four stages of one layer, which fill their devices: 2 x 8 s for the other layers, and 4 s
    for the first forward and for both backwards, though the work takes 24 s in all. A microbatch of two layers takes 24 s."""
    assert stages_seconds(with_room(1, 4), every(one(4))) == pytest.approx(16 + 4 * 3)
    assert stages_seconds(two_kinds(), every(one(4))) == pytest.approx(24.0)
    assert stages_seconds(two_kinds(), {"a": (one(4), one(1)), "b": (one(4),)}) == pytest.approx(24.0)


def test_the_fastest_slot_decides_how_long_others_take():
    """A slot of two devices on `b` passes a microbatch in half the time, and so do all layers that are not on the stage."""
    slow, fast = one(8), Mode(2, 1, 8, (12.0, 0.0, 0.0), 4.0, 4.0)
    found = stages_seconds(two_kinds(), {"a": (slow,), "b": (fast,)})
    assert found == pytest.approx(24 + 8)
    assert found < stages_seconds(two_kinds(), every(slow))


@pytest.mark.parametrize(("fit", "seconds"), [(3, 18.0), (2, 18.0), (0, math.inf)])
def test_memory_limits_the_layers_of_a_stage(fit, seconds):
    """The weights and gradients of each layer, and one microbatch that recomputes all of them."""
    asked = with_room(fit)
    assert [most_layers(asked, cluster, one(1)) for cluster in asked.clusters()] == [fit, fit]
    assert stages_seconds(asked, every(one(1))) == pytest.approx(seconds)


def with_room(fit: int, size: int = 1) -> Request:
    """A request whose devices have room for so many layers and half of a further one, with their inputs and all activations of
    one layer."""
    asked = two_kinds()
    config = replace(configuration(asked, 1, 1, size), other_dp_cp=4, zero_stage=1, recompute="full")
    inputs, _ = memory.layer_activation_bytes(asked.workload, config)
    each = [memory.rank_bytes(asked.workload, config, layers, 1, False, False) - inputs for layers in (fit, fit + 1)]
    room = sum(each) / 2 + memory.outside_torch(config)
    return two_kinds(memory=room / (1 - asked.topology.memory_headroom))


def test_experts_have_no_limit_of_memory():
    asked = two_kinds(experts=4, memory=1.0)
    assert [most_layers(asked, cluster, one(1)) for cluster in asked.clusters()] == [3, 3]
