"""Costs of one pipeline stage."""

from __future__ import annotations

import pytest

from sim.analytic import stage_costs
from sim.analytic.stage_costs import StageCost
from sim.plan.parallel_config import ParallelConfig
from sim.workload.workload import Workload
from tests import builders


@pytest.mark.parametrize(
    ("facts", "deferred", "seconds"),
    [
        ({}, 0, 22.5),
        ({"weight": 1.0}, 4, 18.5),
        ({"traffic": 9.0}, 0, 22.5),
        ({"lane": 7.0}, 0, 28.0),
    ],
    ids=["busy", "weight gradients follow", "reductions do not count", "messages on their lane"],
)
def test_end_of_the_last_of_four_backward_passes(facts, deferred, seconds):
    """Four microbatches of 2 s forward and 3 s backward, with sends of 0.25 s and 0.5 s; the last send does not count."""
    cost = StageCost(2.0, 3.0, 0.0, 0.0, 0.0, 1, send_forward=0.25, send_backward=0.5, **facts)
    assert cost.last_backward(4, deferred) == seconds


def test_a_stage_recomputes_the_forward_of_some_of_its_layers() -> None:
    workload, spec = Workload(builders.model(4), 8, 64), builders.device()
    none, some = (
        stage_costs.compute_seconds(spec, workload, ParallelConfig(**facts), 4, False, False)
        for facts in ({}, {"recompute": "full", "recompute_layers": (3,)})
    )
    assert some == (none[0], pytest.approx(none[1] + 3 / 4 * none[0], rel=1e-12))
