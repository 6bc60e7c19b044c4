"""Layers of a plan whose messages share links are moved between its stages, by simulation."""

from __future__ import annotations

from dataclasses import replace

from planner.placement.simulation import step
from planner.request import Request, Wishes
from planner.search.budgets import Budgets
from planner.search.crowded_links import move_layers
from tests import builders as make
from tests.planner.builders import on_one_cluster, shape
from tests.planner.search.searches import incumbent, simulated

FLAT = [("c", 2)] * 8


def four_nodes(bandwidth: float) -> Request:
    """Four nodes of two devices for 16 layers and 16 microbatches. The two stages of a middle node share its NIC."""
    nics, spec = (make.nic("ethernet", bandwidth),), make.device(speed=1e9, memory_bandwidth=1e12)
    found = on_one_cluster(16, 16, nodes=4, devices=2, nics=nics, spec=spec)
    return replace(found, wishes=Wishes(schedule="1f1b"))


def test_a_layer_leaves_the_stage_that_waits_least():
    """No pipeline is faster than the flat one on an idle network. Stage 1 sends over the NIC of the first node."""
    question = four_nodes(3e5)
    kept = incumbent(question, best=simulated(question, shape(), *FLAT))
    flat = kept.best
    move_layers(kept)
    assert [stage.layers for stage in kept.best.stages] == [3, 1, 2, 2, 2, 2, 2, 2]
    assert step(kept.best) < 0.95 * step(flat)
    assert (kept.best.placement, kept.best.config) == (flat.placement, flat.config)


def test_nothing_is_simulated_where_messages_do_not_matter_or_nothing_can_be_gained():
    fast = four_nodes(1e12)
    kept = incumbent(fast, best=simulated(fast, shape(), *FLAT))
    move_layers(kept)
    assert kept.context.simulated == []
    slow = four_nodes(3e5)
    proved = incumbent(slow, best=simulated(slow, shape(), *FLAT))
    proved.lower_bound = proved.cutoff
    move_layers(proved)
    assert proved.context.simulated == []
    move_layers(incumbent(slow))


def test_it_ends_after_some_tries_in_a_row():
    question = four_nodes(3e5)
    kept = incumbent(question, replace(Budgets(), crowded_tries=0), simulated(question, shape(), *FLAT))
    move_layers(kept)
    assert kept.context.simulated == []


def test_layers_of_a_slower_plan_of_another_kind_are_moved_too():
    """Four stages of tp 2, one on each node, do not share NICs; eight of tp 1 do, and are slower until layers are moved."""
    question = four_nodes(2.5e5)
    whole = simulated(question, shape(tp=2), *[("c", 4)] * 4)
    kept = incumbent(question, best=whole)
    assert not kept.offer(shape(), tuple(FLAT))
    move_layers(kept)
    assert kept.best.config.tp == 1 and step(kept.best) < step(whole)
    far = incumbent(question, replace(Budgets(), crowded_near=0.02), whole)
    assert not far.offer(shape(), tuple(FLAT))
    move_layers(far)
    assert far.best.config.tp == 2
