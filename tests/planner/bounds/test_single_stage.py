"""Lower bounds on pipelines of one stage."""

from __future__ import annotations

from contextlib import suppress

import pytest

from planner.bounds.single_stage import single_bound, single_seconds
from planner.costs.node_classes import node_classes
from planner.placement.ranks import build
from planner.space.shape import split_backward
from planner.space.shapes import overlaps
from sim.analytic.evaluator import evaluate
from sim.errors import NoRoute, NotDefined, NotModelled
from tests.more import after
from tests.planner.builders import families


@pytest.mark.parametrize("seed", after(6, range(300, 320), last=10))
def test_no_pipeline_of_one_stage_is_faster_than_its_bounds(seed):
    """The closed form of its own variant, and the bound for all schedules and ZeRO stages, of any that can be evaluated."""
    for context, every in families(seed, 4):
        ways = [
            {o.cluster.name: o.as_single_stage for o in node_classes(context, one)}
            for one in overlaps(split_backward(every[0]))
        ]
        for shape in (one for variant in every for one in overlaps(variant)):
            for option in node_classes(context, shape):
                name = option.cluster.name
                for evenly, own in enumerate(option.as_single_stage):
                    with suppress(NotModelled, NoRoute, NotDefined):
                        stages = ((name, option.workload.model.layers),)
                        (seconds,) = evaluate([build(context.request, shape, stages, "by hand", bool(evenly))]) * (1 + 1e-9)
                        assert single_seconds(own) <= seconds
                        assert min(single_bound(classes[name][evenly]) for classes in ways) <= seconds
