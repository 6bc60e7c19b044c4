"""Deadline tests of families of shapes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.bounds.deadline_test import DeadlineTest
from planner.bounds.orders import deadline_tests
from planner.bounds.shape_families import AnyChunks, AnySchedule, AnyZeroStage
from planner.costs.context import PlanningContext
from planner.costs.node_classes import NodeClass, node_classes, under
from planner.search.candidates import priced
from planner.space.shape import Shape, split_backward
from planner.space.shapes import overlaps
from tests.more import after
from tests.planner.builders import families


@pytest.mark.parametrize("seed", after(4, range(300, 318), last=9))
def test_no_test_rules_out_the_fastest_pipeline_of_its_shapes(seed):
    """Tests of one shape, of all ZeRO stages, of all schedules, and of all numbers of virtual stages."""
    for context, every in families(seed, 6):
        most = max(shape.zero_stage for shape in every)
        names = tuple(dict.fromkeys(shape.schedule for shape in every if shape.vpp == 1))
        fewest = min((shape for shape in every if shape.vpp > 1), key=lambda shape: shape.vpp, default=None)
        for shape in every:
            for one in overlaps(shape):
                for test in deadline_tests(context, node_classes(context, one), 1e9):
                    rows = test.pipelines(1e9, 3_000)
                    if not rows:
                        continue
                    seconds = priced(context, one, test.order, rows, 1)[0].seconds * (1 + 1e-9)
                    assert test.within(seconds)
                    state = replace(every[0], schedule=shape.schedule, vpp=shape.vpp)
                    family = AnyZeroStage(context, *_classes(context, state, most, test), seconds)
                    assert DeadlineTest(family).within(seconds)
                    if shape.vpp == 1:
                        split = split_backward(every[0])
                        scheduled = AnySchedule(context, *_classes(context, split, most, test), seconds, names)
                        assert DeadlineTest(scheduled).within(seconds)
                    elif fewest is not None:
                        chunked = AnyChunks(context, *_classes(context, fewest, most, test), seconds)
                        assert DeadlineTest(chunked).within(seconds)


def _classes(
    context: PlanningContext, shape: Shape, most: int, test: DeadlineTest
) -> tuple[tuple[NodeClass, ...], tuple[NodeClass, ...]]:
    """The classes of a test under another shape, and under the ZeRO stage that needs least memory."""
    return under(context, shape, test.order), under(context, replace(shape, zero_stage=most), test.order)
