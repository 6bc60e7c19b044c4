"""Pipelines of layers that differ have the steps of their plans on an idle network."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest

from planner.costs.context import PlanningContext
from planner.costs.unlike_layers import UnlikeCosts
from planner.placement.ranks import build
from planner.placement.simulation import simulate_plan, step
from planner.request import Request
from planner.search.unlike_evaluation import UnlikeEvaluation
from planner.space import stand_in
from sim.analytic.evaluator import evaluate
from sim.errors import NotModelled
from sim.plan.plan import Plan
from tests import builders as make
from tests.planner.bounds.test_rank_programme import four_in_two_clusters
from tests.planner.builders import request
from tests.planner.unlike import CHEAP_FIRST, PINNED, only_shape, question


def evaluation(wanted: Request) -> UnlikeEvaluation:
    context, shape = PlanningContext(wanted), only_shape(wanted)
    return UnlikeEvaluation(context, shape, UnlikeCosts(context).classes(shape))


def plan_of(wanted: Request, ranks: tuple[int, ...], split: tuple[int, ...]) -> Plan:
    (part,) = stand_in.stand_ins(wanted)
    further = wanted.workload.model.mtp_layers
    stages = tuple(("ab"[c], own) for c, own in zip(ranks, split, strict=True))
    (name, last) = stages[-1]
    own = (*stages[:-1], (name, last - further))
    built = build(part, only_shape(wanted), (*own[:-1], (name, last)), "test")
    return stand_in.of_model(built, wanted)


@pytest.mark.parametrize("rate", [1e8, 2e5])
@pytest.mark.parametrize(("schedule", "vpp"), [("1f1b", 1), ("interleaved", 2), ("zb-h1", 1), ("1f1b-deepspeed", 1)])
def test_the_seconds_of_a_pipeline_are_those_of_its_plan_or_more_where_links_are_busy(
    rate: float, schedule: str, vpp: int
) -> None:
    wanted, equal = four_in_two_clusters(rate, schedule, vpp), 0
    of = evaluation(wanted)
    for ranks in [(0, 1), (0, 0, 1, 1), (1, 1, 0)]:
        cuts = [(0, *cut, 8) for cut in itertools.combinations(range(vpp, 9 - vpp), len(ranks) - 1)]
        splits = [tuple(b - a for a, b in itertools.pairwise(cut)) for cut in cuts]
        splits = [split for split in splits if min(split) >= vpp][::4]
        if vpp > 1 and len(ranks) == 3:
            continue
        plans = [plan_of(wanted, ranks, split) for split in splits]
        for found, own, plan in zip(of.seconds(ranks, splits, math.inf), evaluate(plans), plans, strict=True):
            assert found <= step(simulate_plan(plan)) * (1 + 1e-9)
            assert found >= own * (1 - 1e-9)
            equal += found == pytest.approx(own, rel=1e-9)
    assert equal


def test_the_last_stage_has_the_layers_for_further_tokens() -> None:
    wanted = question(mtp_layers=1)
    plan = plan_of(wanted, (0, 0), (5, 4))
    assert evaluation(wanted).seconds((0, 0), [(5, 4)], math.inf)[0] == pytest.approx(float(evaluate([plan])[0]), rel=1e-9)


def test_above_the_limit_seconds_are_not_below_it() -> None:
    of = evaluation(question())
    splits = [(n, 8 - n) for n in range(1, 8)]
    whole = of.seconds((0, 0), splits, math.inf)
    limit = float(sorted(whole)[2])
    for short, exact in zip(of.seconds((0, 0), splits, limit), whole, strict=True):
        assert short == pytest.approx(exact) if exact <= limit else limit <= short <= exact * (1 + 1e-9)


def test_unequal_replicas_are_not_modelled() -> None:
    wanted = four_in_two_clusters(1e8, "1f1b", 1)
    wanted = replace(wanted, wishes=replace(PINNED, pp=None, dp=2), workload=replace(wanted.workload, global_batch_size=9))
    with pytest.raises(NotModelled, match="unequal numbers of microbatches"):
        evaluation(wanted)


def test_messages_of_replicas_that_cross_other_nodes_may_come_sooner() -> None:
    """Two replicas of three stages on two nodes of three devices: each crosses the nodes once, at another border."""
    node = ((make.nic("infiniband", 1e9),), make.device(speed=1e10), make.wire(bandwidth=1e8))
    wishes = replace(PINNED, dp=2, pp=3, schedule="zb-h1", microbatch_size=64)
    wanted = request(make.fleet(make.cluster("a", 2, 3, *node)), make.model(8, **CHEAP_FIRST), 128, wishes)
    splits = [(1, 4, 3), (2, 3, 3), (3, 3, 2)]
    for found, split in zip(evaluation(wanted).seconds((0, 0, 0), splits, math.inf), splits, strict=True):
        assert 0.9 < found / step(simulate_plan(plan_of(wanted, (0, 0, 0), split))) <= 1 + 1e-9
