"""Shapes of the stand-ins in the search of layers that differ."""

from __future__ import annotations

from dataclasses import replace

from planner.search.unlike_shapes import layout_of, of_each_schedule, open_shapes
from tests.planner.unlike import PINNED, question


def test_pins_leave_one_shape_for_each_recomputation() -> None:
    wanted = question(replace(PINNED, recompute=None))
    assert [one.shape.recompute for one in open_shapes(wanted)] == ["none", "full"]


def test_variants_of_one_schedule_and_vpp_are_together() -> None:
    """ZeRO 1 and 2 gather weights before the forwards or after the optimizer, ZeRO 3 with each layer."""
    wanted = question(replace(PINNED, dp=2, pp=1, schedule=None, zero_stage=None))
    (one,) = open_shapes(wanted)
    found = {(each.shape.schedule, each.shape.vpp): each.variants for each in of_each_schedule(one)}
    assert [(v.zero_stage, v.overlap_param_gather) for v in found["1f1b", 1]] == [
        (1, True), (1, False), (2, True), (2, False), (3, True),
    ]  # fmt: skip
    assert all(layout_of(v) == layout_of(each.shape) for each in of_each_schedule(one) for v in each.variants)


def test_layouts_that_differ_in_the_zero_stage_are_the_same() -> None:
    (one,) = open_shapes(question())
    assert layout_of(replace(one.shape, zero_stage=2)) == layout_of(one.shape) != layout_of(replace(one.shape, tp=2))
