"""The plan of a pipeline whose stages have shapes of their own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.placement.ranks import build
from planner.placement.unlike_degrees import build_unlike
from sim.errors import PlanError
from sim.hardware.cluster import Device
from tests.planner.builders import shape
from tests.planner.unlike_degrees import question


def test_equal_shapes_give_the_plan_of_the_shape():
    one = shape(dp=2, microbatch_size=2, recompute="block")
    found = build_unlike(question(), [("b", one, 1), ("b", one, 1), ("a", one, 1)], "by hand")
    assert found == build(question(), one, (("b", 1), ("b", 1), ("a", 1)), "by hand")


def test_each_stage_takes_the_next_slots_of_its_cluster():
    wide, many = shape(tp=2, dp=1, microbatch_size=2), shape(dp=2)
    found = build_unlike(question(), [("b", wide, 1), ("b", wide, 1), ("a", many, 1)], "by hand")
    config = found.config
    assert (config.tp, config.stage_tp, config.dp, config.stage_dp) == (2, (2, 2, 1), 1, (1, 1, 2))
    assert (config.microbatch_size, config.num_microbatches, config.sequence_parallel) == (2, (4,), True)
    assert found.placement == tuple(Device(name, 0, index) for name, index in zip("bbbbaa", (0, 1, 2, 3, 0, 1), strict=True))


def test_each_stage_divides_sequences_and_experts_in_its_own_way():
    """Of a mixture with four experts: two replicas of one device on `a` beside others of two devices on `b`."""
    asked = question(room=200e6, experts=4)
    short, long = shape(dp=2, ep=2, recompute="block"), shape(dp=2, cp=2, ep=4, recompute="block")
    config = build_unlike(asked, [("a", short, 1), ("b", long, 2)], "by hand").config
    assert (config.dp, config.cp, config.ep, config.etp) == (2, 1, 2, None)
    assert (config.stage_dp, config.stage_cp, config.stage_ep, config.stage_etp) == ((), (1, 2), (2, 4), ())
    wide = shape(tp=2, dp=2, ep=4, etp=1, recompute="block")
    config = build_unlike(asked, [("a", short, 1), ("b", wide, 2)], "by hand").config
    assert (config.stage_tp, config.stage_ep, config.etp, config.stage_etp) == ((1, 2), (2, 4), 1, ())
    wide = shape(tp=2, dp=2, ep=2, recompute="block")
    config = build_unlike(asked, [("a", replace(short, etp=1), 1), ("b", wide, 2)], "by hand").config
    assert (config.stage_tp, config.ep, config.etp, config.stage_etp) == ((1, 2), 2, 1, (1, 2))


def test_samples_that_cannot_be_divided_are_refused():
    with pytest.raises(PlanError, match="of two degrees, one must divide the other"):
        build_unlike(
            question(), [("b", shape(dp=3, microbatch_size=4), 2), ("a", shape(dp=2, microbatch_size=6), 1)], "by hand"
        )
