"""The deadline test of pipelines of layers that differ."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from planner import api
from planner.bounds.unlike_deadline import deadline_bound, least_seconds, might_finish
from planner.costs.context import PlanningContext
from planner.costs.unlike_layers import UnlikeCosts
from planner.placement.simulation import step
from planner.request import Request
from tests import builders as make
from tests.planner.builders import request
from tests.planner.unlike import CHEAP_FIRST, PINNED, interleaved, only_shape, question


@pytest.mark.parametrize("vpp", [1, 2])
def test_the_bound_is_below_the_step_and_near_it(vpp: int) -> None:
    wanted = question(interleaved(vpp)) if vpp > 1 else question()
    context, shape = PlanningContext(wanted), only_shape(wanted)
    classes, seconds = UnlikeCosts(context).classes(shape), step(api.plan(wanted))
    bound = deadline_bound(context, shape, classes, 0.0, math.inf)
    assert 0.8 * seconds < bound <= seconds
    assert might_finish(context, [classes], seconds)
    assert not might_finish(context, [classes], 0.5 * seconds)


def test_what_is_known_is_kept() -> None:
    wanted = question()
    shape, costs = only_shape(wanted), UnlikeCosts(PlanningContext(wanted))
    bound = least_seconds(wanted, shape, costs.classes(shape), 0.0, math.inf)
    assert least_seconds(wanted, shape, costs.classes(shape), 0.0, bound / 2) == bound / 2, "no pipeline ends so soon"
    assert least_seconds(wanted, shape, costs.classes(shape), 2 * bound, 4 * bound) == pytest.approx(2 * bound, rel=2e-3)


def test_without_memory_there_is_no_pipeline() -> None:
    wanted = _with_memory(2.1e9)  # less than torch and CUDA need
    shape, costs = only_shape(wanted), UnlikeCosts(PlanningContext(wanted))
    assert least_seconds(wanted, shape, costs.classes(shape), 0.0, math.inf) == math.inf
    assert not might_finish(costs.context, [costs.classes(shape)], 1e9)


def _with_memory(nbytes: float) -> Request:
    machines = make.fleet(make.cluster("a", nodes=2, devices=1, spec=make.device(speed=1e10, memory=nbytes)))
    return request(machines, make.model(8, **CHEAP_FIRST), 8, replace(PINNED))
