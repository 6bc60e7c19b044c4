"""The stages that devices may hold: memory, recomputation, and clusters that are alike."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.bounds.pipeline_modes import Mode, configuration
from planner.bounds.stage_options import device_kinds, most_layers, recomputed
from planner.request import Request
from sim.kernels import communicators, compute, memory
from tests.planner.pipelines.fleets import two_kinds


def one(size: int, tp: int = 1, cp: int = 1, both: float = 3.0) -> Mode:
    """A mode whose layers take `both` seconds for a sample, a third of it for the forward and for the gradients of inputs."""
    return Mode(tp, cp, size, (both * size, 0.0, 0.0), both / 3 * size, both / 3 * size)


def with_room(fit: int, again: int) -> Request:
    """A request whose devices have room for `fit` layers and one microbatch of one sample, where `again` of them are recomputed
    and keep their inputs, and half of the activations of one layer besides."""
    asked = two_kinds()
    kept = replace(configuration(asked, 1, 1, 1), other_dp_cp=4, zero_stage=1)
    full = replace(kept, recompute="full")
    layer = memory.layer_activation_bytes(asked.workload, kept)[0]
    inputs = memory.layer_activation_bytes(asked.workload, full)[0]
    if again:  # the layers that are recomputed, and the others, of which each keeps its activations, too
        needed = memory.rank_bytes(asked.workload, full, fit, 1, False, False) + (fit - again) * (layer - inputs) - inputs
    else:
        needed = memory.rank_bytes(asked.workload, kept, fit, 1, False, False)
    room = needed + (layer - inputs) / 2 + communicators.outside_torch(kept)
    return two_kinds(memory=room / (1 - asked.topology.memory_headroom))


@pytest.mark.parametrize("again", [0, 2, 3])
def test_layers_are_recomputed_as_far_as_memory_requires(again):
    """Three layers fit if so many are recomputed, each of which takes its forward once more. One frees nothing: with a single
    microbatch, its activations are there when it is recomputed."""
    asked = with_room(3, again)
    full = replace(configuration(asked, 1, 1, 1), recompute="full")
    for cluster in asked.clusters():
        forward = compute.layer_seconds(cluster.node.device, asked.workload, full)[0]
        assert most_layers(asked, cluster, one(1)) == 3
        assert recomputed(asked, cluster, one(1))[3] == pytest.approx(again * forward)
        assert recomputed(asked, cluster, one(1))[:2] == (0.0, 0.0)


def test_fewer_layers_fit_less_memory():
    """Two layers that are both recomputed, and no third one."""
    asked = with_room(2, 2)
    assert [most_layers(asked, cluster, one(1)) for cluster in asked.clusters()] == [2, 2]
    assert all(len(recomputed(asked, cluster, one(1))) == 3 for cluster in asked.clusters())


def test_nothing_fits_into_no_memory():
    asked = two_kinds(memory=1e6)
    assert [most_layers(asked, cluster, one(1)) for cluster in asked.clusters()] == [0, 0]
    assert [kind.options for kind in device_kinds(asked, {"a": (one(1),), "b": (one(1),)})] == [{}]


def test_experts_have_no_limit_of_memory():
    asked = two_kinds(experts=4, memory=1.0)
    assert [most_layers(asked, cluster, one(1)) for cluster in asked.clusters()] == [3, 3]
    assert [recomputed(asked, cluster, one(1)) for cluster in asked.clusters()] == [(0.0,) * 4] * 2


def test_clusters_with_equal_modes_are_one_kind():
    asked = two_kinds(nodes=(2, 1), devices=(1, 2))
    alike = device_kinds(asked, {"a": (one(1),), "b": (one(1),)})
    unlike = device_kinds(asked, {"a": (one(1),), "b": (one(1, both=6.0),)})
    assert [kind.devices for kind in alike] == [4]
    assert [kind.devices for kind in unlike] == [2, 2]


def test_slots_of_equally_many_devices_are_one():
    """The least seconds of tp 2 and of cp 2."""
    asked = two_kinds()
    divided = (one(1, tp=2, both=6.0), one(1, cp=2, both=4.5))
    (own,) = device_kinds(asked, {"a": divided, "b": divided})[0].options[1]
    assert (own.devices, own.both, own.forward) == (2, 4.5, 1.5)
