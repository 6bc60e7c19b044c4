"""Whole layers that the stages of a plan recompute."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.certificates.scarce import squeezed
from planner.placement.ranks import build, virtual_stages
from planner.placement.recomputation import fewest_recomputed, recomputing, virtual_recomputed
from planner.placement.simulation import fits
from sim.kernels import memory
from sim.plan.parallel_config import BLOCK
from sim.plan.plan import Plan
from tests import builders as make
from tests.planner.builders import on_one_cluster, shape


@pytest.mark.parametrize(
    ("layers", "recomputed", "vpp", "expected"),
    [
        ([5, 3], [2, 0], 1, [2, 0]),
        ([4, 4], [3, 1], 2, [2, 1, 1, 0]),
        ([5], [3], 2, [1, 2]),  # chunks of 2 and 3 layers: the larger one first
        ([8], [7], 5, [1, 2, 1, 2, 1]),  # chunks of 1, 2, 1, 2 and 2 layers
        ([8], [8], 5, [1, 2, 1, 2, 2]),
        ([8], [2], 5, [0, 1, 0, 1, 0]),
    ],
)
def test_the_virtual_stages_share_the_recomputed_layers(layers, recomputed, vpp, expected):
    assert virtual_recomputed(np.array([layers]), np.array([recomputed]), vpp).tolist() == [expected]


@given(st.integers(1, 12), st.data())
def test_no_virtual_stage_recomputes_more_layers_than_it_has(vpp: int, data: st.DataObject):
    layers = data.draw(st.lists(st.integers(vpp, 40), min_size=1, max_size=4))
    recomputed = [data.draw(st.integers(0, most)) for most in layers]
    sizes = virtual_stages(np.array([layers]), vpp)[0]
    counts = virtual_recomputed(np.array([layers]), np.array([recomputed]), vpp)[0]
    assert (counts >= 0).all() and (counts <= sizes).all()
    assert counts.reshape(vpp, -1).sum(axis=0).tolist() == recomputed
    assert (counts.reshape(vpp, -1).max(axis=0) - counts.reshape(vpp, -1).min(axis=0) <= 1).all()


def tight(share: float, layers: tuple[int, ...], recompute: str = "none", **degrees: object) -> Plan:
    """A pipeline on devices with memory between what it needs with full recomputation (share 0) and with none (share 1)."""
    numbers = {"layers": sum(layers), "batch": 8, "nodes": len(layers)}
    placed, one = tuple(("c", count) for count in layers), shape(recompute=recompute, **degrees)
    ample = build(on_one_cluster(**numbers), replace(one, recompute="none"), placed, "by hand")
    return build(squeezed(on_one_cluster(**numbers), ample, share), one, placed, "by hand")


def with_counts(plan: Plan, counts: tuple[int, ...]) -> Plan:
    return replace(plan, config=replace(plan.config, recompute="full", recompute_layers=counts))


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("degrees", [{}, {"schedule": "interleaved", "vpp": 2}, {"schedule": "zb-h2"}, {"schedule": "gpipe"}])
def test_with_one_layer_less_recomputed_the_plan_would_not_fit(share, degrees):
    plan = tight(share, (6, 6, 6, 6), **degrees)
    counts = fewest_recomputed(plan)
    assert fits(with_counts(plan, counts))
    assert share < 1 or not any(counts)
    for index, count in enumerate(counts):
        if count:
            assert not fits(with_counts(plan, (*counts[:index], count - 1, *counts[index + 1 :])))


def test_the_first_stage_of_1f1b_recomputes_most():
    """It holds four microbatches in flight, the last one holds one, and logits."""
    assert fewest_recomputed(tight(0.4, (6, 6, 6, 6))) == (4, 1, 0, 0)
    assert fewest_recomputed(tight(0.2, (6, 6, 6, 6))) == (5, 2, 0, 2)


def test_targets_may_have_one_number_for_all_stages_or_all_layers():
    plan = tight(0.4, (6, 6, 6, 6))
    counts = fewest_recomputed(plan)
    assert [(one.config.recompute, one.config.recompute_layers) for one in recomputing(plan)] == [
        ("full", counts),
        ("full", (counts[0],)),
        ("full", ()),
    ]


def test_a_plan_with_room_recomputes_nothing():
    plan = next(recomputing(tight(1.0, (6, 6))))
    assert (plan.config.recompute, plan.config.recompute_layers) == ("none", ())


def test_build_recomputes_the_fewest_layers():
    built = tight(0.4, (6, 6, 6, 6), recompute=BLOCK)
    assert built.config.recompute_layers == (4, 1, 0, 0)
    assert fits(built)


def test_stages_of_equal_tp_and_unlike_dp_need_not_recompute_alike():
    """Both stages have two layers, as much memory and one microbatch. A rank of the first one has all four samples, one of the
    second half of them."""
    machines = make.fleet(make.cluster(nodes=5, spec=make.device(memory=1e9)))
    alike = make.plan(machines, 1, 4, 1, layers=(2, 2, 2, 2), stage_dp=(1, 1, 2, 1), microbatch_size=4)
    peaks = memory.peak_memory(alike)
    between = (peaks[1] + peaks[2]) / 2
    room = replace(machines.clusters[0], node=replace(machines.clusters[0].node, device=make.device(memory=between)))
    tight = replace(alike, topology=replace(alike.topology, fleet=make.fleet(room)))
    counts = fewest_recomputed(tight)
    assert counts[1] > 0 == counts[2]
