"""Stages as arrays over their numbers of layers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from planner.bounds.mixed_filling import PlacedStages
from planner.bounds.path_stages import forwards_left, microbatches_between, most_microbatches, stages_of
from planner.bounds.placed_deadline import DeadlineOf
from planner.costs.context import PlanningContext
from planner.costs.mixed_stages import MixedStageCosts
from planner.request import Wishes
from planner.space.device_slots import Run
from sim.hardware.cluster import Trunk
from sim.plan import schedules
from tests import builders as make
from tests.planner.builders import request, shape
from tests.planner.targets import alike_replicas


@pytest.mark.parametrize("alike", [True, False])
def test_stages_have_their_passes_and_messages_by_layers(alike):
    """Two stages on two clusters, of a model of five layers, with up to three layers each, and two replicas."""
    nics, spec = (make.nic("ethernet", 1e6),), make.device("chip", 2e7, 1e30)
    clusters = [make.cluster(name, 2, 1, nics, spec) for name in "ab"]
    fleet = make.fleet(*clusters, trunks=(Trunk(("a", "b"), "ethernet", 3e4, 0.0),))
    question = request(fleet, make.model(5), 16, Wishes(schedule="1f1b", zero_stage=1))
    question = replace(question, target=alike_replicas() if alike else None)
    a, b = question.clusters()
    placed = tuple((Run(a, i, 1), Run(b, i, 1)) for i in range(2))
    stages = PlacedStages(MixedStageCosts(PlanningContext(question)), shape(dp=2), placed, [schedules.get("1f1b")])
    assert most_microbatches(stages) == (8 if alike else 16)
    first, last = stages_of(stages, DeadlineOf(1e9, 0.3, [3, 3]), 8)
    assert (first.before, last.before) == (range(1), range(2, 4))
    assert first.left[8] == 7 - 1 and last.left[8] == 7 and last.between[8] == 7
    assert np.all(np.diff(first.left) >= 0)
    here = stages.groups[0][1]
    assert last.forward[0, 0].tolist() == pytest.approx([here.forward[0] + k * here.forward[1] for k in (1, 2, 3)])
    assert last.ahead[0, 0, 0] == pytest.approx(here.arrived) and first.ahead[0, 0, 0] == 0
    assert last.gathers.tolist() == [stages.around(1, k)[0] for k in (1, 2, 3)]


def test_forwards_and_backwards_of_1f1b():
    """Of eight microbatches on the first of four stages, four forwards precede the first backward, and four follow it."""
    assert [forwards_left("1f1b", stage, 4, 8) for stage in range(4)] == [4, 5, 6, 7]
    assert [microbatches_between("1f1b", stage, 4, 8) for stage in range(4)] == [4, 5, 6, 7]
    assert microbatches_between("1f1b", 0, 4, 3) == 0
