"""A pin only makes the space smaller, so it gives no faster plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks import owned_fleets, pins
from planner.placement.simulation import step
from planner.request import Wishes
from planner.space.shapes import searched
from tests.more import after


@pytest.mark.parametrize("fleets", after(1, [1, 2]))
def test_no_pin_gives_a_faster_plan(fleets):
    found = list(pins.measure(fleets=fleets, pins=2))
    assert len(found) >= 2 * fleets
    assert max(one.faster for one in found) <= pins.SLACK


def test_pins_that_exclude_each_other_are_left_out(monkeypatch):
    monkeypatch.setattr(pins, "pinned", lambda *_: Wishes(schedule="zb-h1", vpp=3))
    assert not list(pins.compared(0, pins.draw(0), 1))


def test_a_pin_of_short_chunks_finds_no_faster_plan():
    """With cp 2, sequences fit on four devices only with ZeRO 2, whose gradients take memory in every microbatch."""
    question = pins.draw(40)
    free, pinned = (pins.planned(one) for one in (question, replace(question, wishes=replace(question.wishes, cp=2))))
    assert free is not None and pinned is not None
    configs = [one.config for one in (free, pinned)]
    found = [(one.tp, one.cp, one.pp, one.microbatch_size, one.zero_stage) for one in configs]
    assert found == [(2, 1, 2, 3, 1), (2, 2, 1, 3, 2)]
    assert [round(step(one), 4) for one in (free, pinned)] == [1.0434, 1.0942]


def test_what_is_pinned_already_stays_pinned():
    for seed in range(5):
        question = pins.draw(seed)
        wishes = pins.pinned(question, None, pins.random.Random(seed))
        given = {key: value for key in wishes.__slots__ if (value := getattr(question.wishes, key)) is not None}
        assert {key: getattr(wishes, key) for key in given} == given
        assert wishes != question.wishes


def test_fleets_as_users_own_them():
    drawn = [owned_fleets.draw(seed) for seed in (0, 3, 7, 8, 10, 17, 23, 28)]
    assert {len(one.topology.fleet.clusters) for one in drawn} == {1, 2, 3}
    sizes = [one.topology.fleet.devices for one in drawn]
    assert min(sizes) == 4 and 100 < max(sizes) <= 192
    assert {one.target.name for one in drawn if one.target is not None} == {"any", "deepspeed", "torchtitan"}
    workloads = [one.workload for one in drawn]
    assert {one.adapter is not None for one in workloads} == {one.model.experts > 1 for one in workloads} == {True, False}
    assert max(one.seq_len for one in workloads) == owned_fleets.LONG
    assert all(next(iter(searched(one)), None) is not None for one in drawn)
    assert drawn[3].topology == owned_fleets.draw(8).topology
    for one in drawn:
        positions = one.workload.model.learned_positions
        assert positions == 0 or one.workload.seq_len <= positions


def test_fleets_of_models_whose_layers_differ():
    drawn = [owned_fleets.draw_unlike(seed) for seed in (1, 5, 9, 10)]
    models = [one.workload.model.name for one in drawn]
    assert models == ["gpt-oss-20b", "deepseek-v2-lite", "gemma-3-27b", "gemma-3-27b"]
    assert not any(one.workload.model.is_uniform for one in drawn)
    assert [one.topology.fleet.devices for one in drawn] == [36, 32, 16, 48]
    assert [one.target.name for one in drawn if one.target is not None] == ["any", "any", "any", "megatron"]


def test_pins_of_a_model_whose_layers_differ():
    """They are of the shapes of the models of equal layers that stand for it."""
    fleet = replace(owned_fleets.draw_unlike(9), time_limit=60.0)
    topology = replace(fleet.topology, workload=replace(fleet.workload, global_batch_size=16))
    assert topology.workload is not None
    question = replace(fleet, topology=topology, workload=topology.workload)
    wishes = [pins.pinned(question, None, pins.random.Random(seed)) for seed in range(20)]
    assert {one.recompute for one in wishes} >= {None, "none"}
    assert {one.tp for one in wishes} > {None}
    assert all(pins.is_searched(question, one) for one in wishes if one.schedule is None and one.vpp is None)
