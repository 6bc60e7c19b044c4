"""Which leaf each node's work stands under where the spine is narrow."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from planner.placement.leaves import arranged, partitions, tilings
from planner.placement.oversubscription import OversubscriptionCosts
from planner.placement.ranks import build
from planner.request import Request
from planner.space.shape import Shape
from sim.engine.engine import simulate
from sim.hardware.cluster import Fabric
from sim.plan.plan import Plan
from sim.results.report import predict
from tests.planner.placement.on_leaves import in_order, leaves_of, on_leaves, shape


def built(question: Request, shape: Shape, pp: int) -> Plan:
    return build(question, shape, (("c", 12 // pp),) * pp, "by hand")


def step(plan: Plan) -> float:
    return predict(plan, simulate(plan)).step_s


def test_partitions_differ_in_more_than_the_names_of_leaves():
    assert list(partitions(3, [2, 2])) == [(0, 0, 1), (0, 1, 0), (0, 1, 1)]
    assert list(partitions(3, [2, 1])) == [(0, 0, 1), (0, 1, 0), (1, 0, 0)]
    assert list(partitions(2, [1, 0])) == []


@pytest.mark.parametrize("sizes", [[2, 2, 2], [3, 3], [2, 2, 1], [2, 2, 2, 2], [4, 2]])
def test_partitions_are_all_there_are(sizes):
    """Of all words over the leaves that fit: one for each set of (size of leaf, nodes under it)."""
    items = 5
    words = (word for word in itertools.product(range(len(sizes)), repeat=items))
    fitting = [word for word in words if all(word.count(leaf) <= size for leaf, size in enumerate(sizes))]

    def looks(word: tuple[int, ...]) -> frozenset[tuple[int, tuple[int, ...]]]:
        under = ((leaf, tuple(i for i in range(items) if word[i] == leaf)) for leaf in set(word))
        return frozenset((sizes[leaf], nodes) for leaf, nodes in under)

    found = list(partitions(items, sizes))
    assert len(found) == len({looks(word) for word in found})
    assert {looks(word) for word in found} == {looks(word) for word in fitting}


def test_tilings_are_strips_of_each_stage():
    """Two stages of three nodes under four leaves of two: pipelines together, in order, and each stage under its own leaves."""
    found = {tuple(tiling.tolist()) for tiling in tilings(np.array([0, 0, 0, 1, 1, 1]), [2, 2, 2, 2])}
    assert found == {
        (0, 1, 2, 0, 1, 2),  # one node of each stage
        (0, 0, 2, 1, 1, 2),  # two nodes of each stage
        (0, 0, 1, 1, 2, 2),  # whole stages: in order
    }


@pytest.mark.parametrize(
    ("nodes", "fabric", "dp", "tp", "pp", "zero", "schedule"),
    [
        (6, Fabric(2, 4.0), 3, 2, 2, 1, "1f1b"),
        (6, Fabric(3, 8.0), 2, 2, 3, 1, "1f1b"),
        (6, Fabric(2, 3.0), 2, 2, 3, 3, "gpipe"),
        (6, Fabric(4, 4.0), 3, 2, 2, 0, "1f1b"),
        (6, Fabric(2, 4.0), 3, 1, 4, 1, "1f1b"),  # stages of a node and a half
        (6, Fabric(2, 2.0), 2, 2, 2, 2, "zb-h1"),  # two nodes to spare
    ],
)
def test_no_permutation_of_nodes_is_better_than_the_one_chosen(nodes, fabric, dp, tp, pp, zero, schedule):
    """Brute force over all 720."""
    question = on_leaves(nodes, fabric)
    plan = in_order(question, shape(dp, tp, zero, schedule), pp)
    spine = OversubscriptionCosts(plan)
    best = min(spine.evaluate(spine.leaves[list(order)]) for order in itertools.permutations(range(nodes)))
    chosen = replace(plan, placement=arranged(plan))
    assert OversubscriptionCosts(chosen).evaluate(spine.leaves) == best


def test_rings_get_uplinks_of_their_own():
    """Two stages of three nodes under four leaves of two: in order both rings are on the second leaf's uplink."""
    question = on_leaves(8, Fabric(2, 4.0))
    before, after = in_order(question, shape(3), 2), built(question, shape(3), 2)
    assert leaves_of(before) == [0, 0, 1, 1, 2, 2]
    rings = leaves_of(after)[:3], leaves_of(after)[3:]
    assert not set(rings[0]) & set(rings[1])
    assert [len(set(ring)) for ring in rings] == [2, 2]
    assert step(after) < 0.8 * step(before)


def test_messages_stay_under_a_leaf_where_they_cost_more_than_rings():
    """Many microbatches: each waits for its messages, and the one ring hides behind a backward."""
    question = on_leaves(8, Fabric(4, 8.0), hidden=96, batch=4 * 256)
    after = built(question, shape(4), 2)
    assert leaves_of(after)[:4] == leaves_of(after)[4:]
    assert step(after) < step(in_order(question, shape(4), 2))


def test_many_nodes_stand_in_tiles():
    """Twelve stages of three nodes under leaves of four, with room: no ring crosses the spine."""
    question = on_leaves(48, Fabric(4, 4.0))
    before, after = in_order(question, shape(3), 12), built(question, shape(3), 12)
    assert [len(set(leaves_of(after)[first : first + 3])) for first in range(0, 36, 3)] == [1] * 12
    assert step(after) < step(before)


@pytest.mark.parametrize("fabric", [None, Fabric(2, 1.0), Fabric(1, 4.0), Fabric(8, 4.0)])
def test_without_a_narrow_spine_stages_stand_in_order(fabric):
    question = on_leaves(8, fabric)
    assert built(question, shape(3), 2) == in_order(question, shape(3), 2)


def test_other_groups_than_tp_dp_and_pp_stay_in_order():
    question = on_leaves(8, Fabric(2, 4.0))
    for other in (replace(shape(2), cp=2), replace(shape(4), zero_shard_size=2)):
        plan = built(question, other, 2)
        assert [device.node for device in plan.placement[::2]] == list(range(8))


def test_a_plan_in_order_stays_where_nothing_is_gained():
    """One stage a leaf, messages negligible: there is nothing better, and what is as good comes later."""
    question = on_leaves(8, Fabric(4, 4.0), batch=8)
    assert built(question, shape(4), 2) == in_order(question, shape(4), 2)
