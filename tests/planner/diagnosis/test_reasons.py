"""Verdicts on shapes: the seconds of the best pipeline, or the memory that is missing."""

from __future__ import annotations

import math

from planner.costs.context import PlanningContext
from planner.diagnosis.reasons import verdicts
from sim.kernels import memory
from tests import builders as make
from tests.planner.builders import SEARCHED_ONCE, on_one_cluster


def test_verdicts_are_sorted_and_name_the_bottleneck():
    found = verdicts(PlanningContext(on_one_cluster(layers=4, nodes=2, wishes=SEARCHED_ONCE)), 3)
    assert [verdict.shape.dp for verdict in found] != []
    assert [verdict.seconds for verdict in found] == sorted(verdict.seconds for verdict in found)
    assert all(verdict.why.startswith(("stage ", "messages ")) for verdict in found)


def test_a_lack_of_memory_is_a_verdict():
    question = on_one_cluster(layers=4, nodes=2, wishes=SEARCHED_ONCE, spec=make.device(memory=memory.OUTSIDE))
    found = verdicts(PlanningContext(question), 1)
    assert {verdict.seconds for verdict in found} == {math.inf}
    assert any(
        verdict.why
        == "memory: c has devices for up to 2 stages, and each holds up to 0 of the model's 4 layers beside one microbatch"
        for verdict in found
    )
