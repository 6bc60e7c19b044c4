"""The strategy amp: its cost of a step, its mean layer times and its order of ranks."""

from __future__ import annotations

import pytest

from planner.costs.context import PlanningContext
from planner.costs.node_classes import NodeClass
from planner.request import Wishes
from planner.space.shapes import shapes
from planner.strategies import amp
from tests.planner.builders import plan_of
from tests.planner.strategies.fleets import on


@pytest.mark.parametrize(
    ("microbatches", "stages", "messages", "sync", "seconds"),
    [
        (1, [2.0, 3.0], [0.5], 1.0, 6.5),
        (4, [2.0, 3.0, 2.0], [0.5, 0.25], 1.0, 17.75),  # 3 x 3 + 7 + 0.75 + 1
        (8, [2.0], [], 0.0, 16.0),
    ],
)
def test_the_cost_of_amp(microbatches, stages, messages, sync, seconds):
    """(m - 1) max t + sum t + sum e + sync."""
    assert amp.cost(microbatches, stages, messages, sync) == seconds


def test_the_gradient_sum_of_amp_is_a_ring_over_its_slowest_link():
    assert amp.ring_seconds(4, 100.0, 0.02) == pytest.approx(3.0)  # 2 x 3/4 x 100 x 0.02
    assert amp.ring_seconds(1, 100.0, 0.02) == 0.0


def test_amp_splits_a_single_microbatch_evenly():
    assert amp.even(10, 4) == (3, 3, 2, 2)


def test_amp_takes_the_mean_of_layer_times_and_so_gives_the_slow_no_fewer_layers():
    request = on("two speeds", Wishes(tp=1, dp=4, microbatch_size=1, recompute="none"))
    plan = plan_of(request, "amp")
    assert [stage.layers for stage in plan.stages] == [6, 6]  # 1 and 0.4 PFLOP/s; a small vocabulary
    shape = next(shapes(request))
    (alone, each), _ = amp.mean_seconds(PlanningContext(request), shape, 2)
    fast, slow = (NodeClass(PlanningContext(request), cluster, shape, []).layer_seconds for cluster in request.clusters())
    assert each == pytest.approx((fast + slow) / 2)
    assert alone >= 0


def test_amp_gives_ranks_out_along_the_nodes_as_listed():
    """Tensor first, then data, then pipeline."""
    plan = plan_of(on("three clusters", Wishes(tp=2, dp=1, microbatch_size=1)), "amp")
    assert [str(device) for device in plan.placement] == [f"{c}/node0/dev{d}" for c in "abc" for d in range(2)]
