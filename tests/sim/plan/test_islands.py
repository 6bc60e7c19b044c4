"""Plans of islands check themselves: one model, one fleet, no device twice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.errors import NotModelled, PlanError
from sim.plan.islands import IslandsPlan
from sim.sync import Sync
from tests.sim.islands.builders import islands_plan, machines

PLAN = islands_plan(machines(), Sync("diloco", 10))


@pytest.mark.parametrize(
    ("islands", "why"),
    [
        (PLAN.islands[:1], "islands: 1 given; at least two exchange something"),
        (PLAN.islands[:1] * 2, "islands[1].placement: a/node0/dev0 is already a device of islands[0]"),
        (
            (PLAN.islands[0], islands_plan(machines(), Sync("diloco"), seq_len=32).islands[1]),
            "islands[1].workload: all but global_batch_size must be as in islands[0], since they train one model",
        ),
        (
            (PLAN.islands[0], islands_plan(machines(bandwidth=2e9), Sync("diloco")).islands[1]),
            "islands[1].topology: it differs from that of islands[0]; islands are parts of one fleet",
        ),
    ],
)
def test_faults(islands, why):
    with pytest.raises(PlanError) as error:
        IslandsPlan(PLAN.sync, islands, PLAN.made_by)
    assert str(error.value) == why


def test_islands_may_have_unlike_batches():
    more = replace(PLAN.islands[1].workload, global_batch_size=6)
    config = replace(PLAN.islands[1].config, num_microbatches=(3, 3))
    plan = replace(PLAN, islands=(PLAN.islands[0], replace(PLAN.islands[1], workload=more, config=config)))
    assert (plan.batches, plan.weights) == ((2, 6), (0.25, 0.75))


def test_stages_of_an_island_have_one_zero_stage():
    with pytest.raises(NotModelled) as error:
        islands_plan(machines(devices=4), Sync("diloco"), ({"pp": 2, "dp": 2},) * 2, stage_zero=(1, 0))
    assert str(error.value) == "islands[0].config.stage_zero: an island has one ZeRO stage; leave it out"
