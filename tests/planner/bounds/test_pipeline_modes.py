"""Modes of the stages of unlike pipelines: degrees, sizes, and the seconds of their layers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holmes_sim.commands import load
from planner.bounds.pipeline_modes import PARTS, configuration, context_degrees, expert_degrees, modes, suiting
from planner.costs.context import PlanningContext
from planner.request import Request, Wishes
from sim.analytic.stage_amounts import weight_seconds
from sim.analytic.stage_costs import compute_seconds
from tests.planner.pipelines.fleets import two_kinds


def test_devices_of_a_node_may_divide_sequences():
    """Powers of two whose double divides the sequence, together with tp inside a node."""
    asked = two_kinds(devices=(1, 4))
    own, whole = (modes(PlanningContext(asked), whole_sequences) for whole_sequences in (False, True))
    assert {(one.tp, one.cp) for one in own["b"]} == {(1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (4, 1)}
    assert {(one.tp, one.cp) for one in own["a"]} == {(1, 1)}
    assert {(one.tp, one.cp) for one in whole["b"]} == {(1, 1), (2, 1), (4, 1)}
    assert {one.devices for one in own["b"]} == {1, 2, 4}
    assert {one.size for one in own["b"]} == {1, 2, 4, 8}
    assert context_degrees(asked, 512) == [1, 2, 4, 8, 16, 32, 64, 128]
    assert context_degrees(asked, 0) == []


def test_measured_devices_have_whole_sequences():
    """Their profiles do not tell of context parallelism."""
    topology = load("peers/sailor-two-32")
    assert topology.workload is not None
    small = replace(topology.workload, global_batch_size=2)
    found = modes(PlanningContext(Request(topology, small, Wishes())))
    assert {one.cp for own in found.values() for one in own} == {1} and max(one.tp for one in found["a100"]) == 4


def test_the_passes_of_a_layer():
    """Without tensor parallelism a layer costs what it computes; its backward has those of inputs and weights."""
    asked = two_kinds()
    (cluster,) = (one for one in asked.clusters() if one.name == "a")
    for one in modes(PlanningContext(asked))["a"]:
        config = configuration(asked, 1, 1, one.size)
        facts = cluster.node.device, replace(asked.workload, global_batch_size=one.size), config
        forward, backward = compute_seconds(*facts, *PARTS[0])
        assert one.seconds[0] == pytest.approx(forward + backward) and one.forward == pytest.approx(forward)
        assert one.inputs == pytest.approx(backward - weight_seconds(*facts, 1, False)) and one.inputs < backward
        assert one.of_sample[0] == one.seconds[0] / one.size


def test_modes_that_suit_take_least_of_something():
    every = modes(PlanningContext(two_kinds(devices=(1, 4))))
    for name, own in suiting(every).items():
        assert 1 <= len(own) <= 3
        for part in range(3):
            assert min(one.of_sample[part] for one in own) == min(one.of_sample[part] for one in every[name])


def test_a_layer_takes_the_least_time_of_all_degrees_of_experts():
    """Devices with whole experts have larger products than those with slices."""
    asked = two_kinds(devices=(1, 2), experts=4)
    assert expert_degrees(asked, 1) == [(2, None), (4, None)]
    assert expert_degrees(asked, 2) == [(1, 1), (2, None), (2, 1), (4, None), (4, 1)]
    assert expert_degrees(two_kinds(), 2) == []
