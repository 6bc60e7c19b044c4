"""Total-work bounds of layers of several kinds."""

from __future__ import annotations

import math

import pytest

from planner import api
from planner.bounds.unlike_work import UnlikeWork, pipeline_bound, shared_out
from planner.costs.context import PlanningContext
from planner.costs.layer_kinds import Layers
from planner.costs.unlike_layers import UnlikeCosts
from planner.placement.simulation import step
from tests.planner.unlike import interleaved, only_shape, question


@pytest.mark.parametrize(
    ("numbers", "classes", "most", "seconds"),
    [
        ((4, 2), [((1.0, 2.0), 2)], math.inf, 4.0),  # 8 seconds of work on two slots
        ((4, 2), [((1.0, 2.0), 1), ((2.0, 4.0), 1)], math.inf, 16 / 3),  # one half as fast
        ((3, 3), [((1.0, 2.0), 1), ((2.0, 1.0), 1)], math.inf, 3.0),  # each kind where it is fast
        ((4, 2), [((1.0, 2.0), 1), ((2.0, 4.0), 1)], 1, 8.0),  # the faster slot alone
        ((4, 2), [], math.inf, math.inf),
    ],
)
def test_layers_are_shared_out(numbers, classes, most, seconds) -> None:
    assert shared_out(numbers, classes, most) == pytest.approx(seconds)


@pytest.mark.parametrize("vpp", [1, 2])
def test_bounds_are_below_the_step_and_not_far(vpp: int) -> None:
    wanted = question(interleaved(vpp)) if vpp > 1 else question()
    context, shape = PlanningContext(wanted), only_shape(wanted)
    work = UnlikeWork(context, Layers(wanted.workload)).bound(shape)
    bound = pipeline_bound(wanted, shape, UnlikeCosts(context).classes(shape))
    assert work < bound <= step(api.plan(wanted)) < 1.25 * bound


def test_one_stage_computes_everything() -> None:
    """8 microbatches of 4 cheap and 4 expensive layers on one device."""
    wanted = question()
    context, shape = PlanningContext(wanted), only_shape(wanted)
    (option,) = UnlikeCosts(context).classes(shape)
    cheap, expensive = (one.both for one in option.kind_seconds())
    both = 8 * 4 * (cheap + expensive) / 2
    assert UnlikeWork(context, option.layers).bound(shape) == pytest.approx(both)
