"""The certificate of a plan of islands: no plan of its space is below the bound."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest

from planner import api
from planner.islands.certificate import certificate, most_tokens_per_s
from planner.islands.island_plans import IslandPlans
from planner.request import Wishes
from planner.time_limit import TimeLimit
from sim.errors import Infeasible
from sim.islands.prediction import predict
from sim.plan.islands import IslandsPlan
from sim.plan.plan import Plan
from sim.sync import Sync
from tests.more import after
from tests.planner.islands.fleets import request, slow_trunk

SYNCS = (Sync("every-step"), Sync("diloco", 4, compression="int8"), Sync("streaming-diloco", 4, 1, 2), Sync("co2", 3))
PARTITION = (("east",), ("west",))
BATCHES = ((16, 16), (24, 8))


@pytest.fixture(scope="module")
def tried() -> dict:
    plans = IslandPlans(request(slow_trunk(), Wishes()), TimeLimit(20.0), lambda text: None, 4)
    return {
        (PARTITION, batches): tuple(plans.plan(names, batch) for names, batch in zip(PARTITION, batches, strict=True))
        for batches in BATCHES
    }


def some_plans(name: str, batch: int) -> list[Plan]:
    """Plans of one island: of published strategies and of many pinned layouts."""
    here = request(slow_trunk(), Wishes())
    inside = replace(here, workload=replace(here.workload, global_batch_size=batch), machines=((name, 2),), time_limit=1.0)
    found = []
    for pp, size, schedule in itertools.product((1, 2), (1, 2, 4), ("1f1b", "zb-h1")):
        try:
            found.append(api.plan(replace(inside, wishes=Wishes(pp=pp, microbatch_size=size, schedule=schedule)), "megatron"))
        except Infeasible:
            continue
    assert len(found) > 5
    return found


@pytest.mark.parametrize("sync", after(2, (SYNCS[0], SYNCS[2], SYNCS[1], SYNCS[3])), ids=str)
def test_no_plan_of_the_space_is_below_the_bound(tried, sync):
    islands = tried[PARTITION, BATCHES[0]]
    plan = IslandsPlan(sync, islands, islands[0].made_by)
    proof = certificate(plan.annotated(predict(plan)[1]), tried)
    assert proof.lower_bound_s <= proof.objective_s
    assert proof.gap == pytest.approx(1 - proof.lower_bound_s / proof.objective_s)
    for batches in BATCHES:
        east, west = (some_plans(names[0], batch) for names, batch in zip(PARTITION, batches, strict=True))
        for pair in zip(east, west, strict=False):
            other = IslandsPlan(sync, pair, pair[0].made_by)
            assert predict(other)[1].period_s / sync.inner_steps >= proof.lower_bound_s


def test_the_space_is_stated(tried):
    islands = tried[PARTITION, BATCHES[0]]
    plan = IslandsPlan(SYNCS[1], islands, islands[0].made_by)
    proof = certificate(plan.annotated(predict(plan)[1]), tried)
    axes = {axis.name: axis.values for axis in proof.space}
    assert axes["sync"] == ("diloco, every 4 steps, int8",)
    assert axes["islands"] == ("east: batch 16 | west: batch 16", "east: batch 24 | west: batch 8")
    assert axes["tp"] == (1,)
    assert proof.outside[0] == "other islands and batches"


def test_bytes_on_the_only_trunk_are_part_of_the_bound(tried):
    islands = tried[PARTITION, BATCHES[0]]
    plan = IslandsPlan(SYNCS[0], islands, islands[0].made_by)
    bound = certificate(plan.annotated(predict(plan)[1]), {(PARTITION, BATCHES[0]): islands}).lower_bound_s
    inner = max(island.certificate.lower_bound_s for island in islands)
    payload = 4 * plan.workload.model.parameters
    assert bound == pytest.approx(inner + payload / (2e9 / 8 * 0.736), rel=1e-3)


def test_of_islands_of_several_clusters_no_wait_is_bounded(tried):
    """A plan on one of the clusters may have a faster NIC type in common with the other island."""
    islands = tried[PARTITION, BATCHES[0]]
    plan = IslandsPlan(SYNCS[0], islands, islands[0].made_by)
    joined = (("east", "north"), ("west",))
    bound = certificate(plan.annotated(predict(plan)[1]), {(joined, BATCHES[0]): islands}).lower_bound_s
    assert bound == pytest.approx(max(island.certificate.lower_bound_s for island in islands))


def test_no_setting_is_faster_than_what_no_plan_exceeds(tried):
    most = most_tokens_per_s((), tried, [sync.strategy for sync in SYNCS])
    for islands, sync in itertools.product(tried.values(), SYNCS):
        assert predict(IslandsPlan(sync, islands, islands[0].made_by))[1].tokens_per_s <= most
    inner = max(island.certificate.lower_bound_s for island in tried[PARTITION, BATCHES[0]])
    tokens = 32 * tried[PARTITION, BATCHES[0]][0].workload.seq_len
    assert most == pytest.approx(tokens / inner), "equal halves, and no wait for exchanges"


def test_islands_that_exchange_nothing_do_not_wait_for_each_other(tried):
    unlike = {(PARTITION, BATCHES[1]): tried[PARTITION, BATCHES[1]]}
    together, alone = (most_tokens_per_s((), unlike, (name,)) for name in ("diloco", "independent"))
    east, west = (one.workload.tokens / one.certificate.lower_bound_s for one in unlike[PARTITION, BATCHES[1]])
    assert together == pytest.approx(east * 32 / 24)
    assert alone == pytest.approx(east + west)


def test_an_exact_plan_bounds_what_is_allowed_beside_islands(tried):
    east, west = tried[PARTITION, BATCHES[0]]
    fast = replace(east, certificate=replace(east.certificate, lower_bound_s=east.certificate.lower_bound_s / 10))
    assert most_tokens_per_s((fast,), tried, ("diloco",)) == pytest.approx(
        east.workload.tokens / east.certificate.lower_bound_s * 10
    )
    assert most_tokens_per_s((replace(west, certificate=None),), tried, ("diloco",)) == math.inf
