"""Fleets of the lab on which unlike stages or replicas pay."""

from __future__ import annotations

import pytest

from benchmarks import scenarios
from holmes_sim import commands, targets
from planner.placement.simulation import step
from tests.more import more

SHAPES = {
    "lab/lab-unlike-dp": ("tp 1, dp 1x1+2x1", 0.90),
    "lab/lab-unlike-stages": ("tp 1, dp 1x2+3x1", 0.92),
    "lab/lab-unlike-pipelines": ("1 device with 40 samples, 1 on 4 devices with 24 samples", 0.72),
}
"""Fleet -> the fastest plan, and the largest share of the step of the best plan of alike stages and replicas that it takes."""


@more
@pytest.mark.parametrize("name", scenarios.UNLIKE)
def test_the_fastest_plan_has_unlike_stages_or_replicas(name: str) -> None:
    shape, share = SHAPES[name]
    where = commands.load(name)
    answer = commands.plan(where, target=targets.NONE)
    assert answer.replicas is not None
    if answer.replicas.plan is not None:
        assert shape in str(answer.replicas)
        assert answer.replicas.step < share * step(answer.plan)
    else:
        config = answer.plan.config
        assert f"tp {config.tp_text}, dp {config.dp_text}" == shape
        assert step(answer.plan) < share * step(commands.plan(where, target=targets.NONE, tp=1).plan)
