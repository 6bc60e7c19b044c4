"""The first plan: from quick estimates to simulated pipelines."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from holmes_sim import commands
from planner.placement.simulation import fits, step
from planner.request import Request, Wishes
from planner.search import first_plan
from planner.search.budgets import Budgets
from planner.search.candidates import estimates
from planner.search.first_plan import find_first_plan
from planner.space.shapes import searched
from planner.time_limit import TimeLimit
from sim.formats.documents import parse
from sim.formats.edits import edited
from sim.formats.topology import from_document
from tests import builders as make
from tests.more import after, more
from tests.planner import outside_torch
from tests.planner.builders import SEARCHED_ONCE, many_clusters, on_one_cluster, on_two_clusters, plan_of, random_request
from tests.planner.search.searches import incumbent


@pytest.mark.parametrize("seed", after(5, [3, 5, 7, 17, 19, 0, 9, 13]))
def test_the_first_plan_of_a_small_fleet_is_within_a_tenth_of_the_best(seed):
    question = random_request(seed)
    kept = incumbent(question)
    find_first_plan(kept, list(searched(question)))
    assert kept.best is not None and fits(kept.best)
    assert step(kept.best) <= 1.1 * step(plan_of(question))
    assert kept.cutoff == min(step(plan) for plan in kept.context.simulated)


def test_pipelines_whose_messages_share_no_links_are_tried_where_those_of_the_fastest_do():
    """Two GPUs and one slow NIC in a node: one stage of tp 2 on each node is slower on an idle network than two of tp 1, whose
    messages share the NIC, and faster in the simulation."""
    nics = [{"type": "ethernet", "bandwidth": "1 Gbit/s", "count": 1}]
    node = {"devices": {"type": "rtx-3090", "count": 2}, "intra_node": "pcie4", "nics": nics}
    link = {"between": ["a", "b"], "type": "ethernet", "bandwidth": "10 Gbit/s", "latency": "10 ms"}
    workload = {"model": "gpt-3.6b", "global_batch_size": 32, "seq_len": 2048, "precision": "bf16"}
    clusters = {"a": {"nodes": 8, "node": node}, "b": {"nodes": 4, "node": node}}
    document = {"format": "holmes-sim/topology/1", "name": "desks", "clusters": clusters, "links": [link], "workload": workload}
    fleet = from_document(parse("desks", json.dumps(document)))
    assert fleet.workload is not None
    question = Request(fleet, fleet.workload, Wishes(dp=1, microbatch_size=1, schedule="1f1b"))
    kept = incumbent(question)
    find_first_plan(kept, list(searched(question)))
    assert kept.best is not None
    assert (kept.best.config.tp, kept.best.config.pp) == (2, 5)


def test_nothing_that_fits_means_no_plan():
    question = on_one_cluster(nodes=2, spec=make.device(memory=outside_torch.CONTEXT), wishes=SEARCHED_ONCE)
    kept = incumbent(question)
    find_first_plan(kept, list(searched(question)))
    assert kept.best is None


def test_where_the_time_is_up_shapes_with_usual_numbers_of_microbatches_are_estimated():
    """Of 4,096 microbatches at most, one replica has 4 to 4,096: those with 64 are simulated in a thousandth of the time."""
    question = on_one_cluster(8, 4096, nodes=4, wishes=replace(SEARCHED_ONCE, dp=None, microbatch_size=None))
    kept = incumbent(question, Budgets(draft_shapes=1, usual_microbatches=64))
    kept.limit = TimeLimit(0.0)
    find_first_plan(kept, list(searched(question)))
    assert kept.best is not None
    assert kept.best.config.num_microbatches[0] == 64
    assert kept.draft is None


@pytest.mark.parametrize(("time_limit", "simulated"), [(0.0, 1), (math.inf, 2)])
def test_where_the_time_is_up_nothing_is_simulated_that_is_expected_to_be_slower_than_the_draft(time_limit, simulated):
    """Two equal clusters of one node: a pipeline over both, the draft, takes half the step of those on one of them, of
    which the fastest by its estimate is simulated first where there is time."""
    question = on_two_clusters(8, 32, SEARCHED_ONCE, (1e9, 1e9))
    kept = incumbent(question, Budgets(first_tries=0, mixed_tries=0))
    kept.limit = TimeLimit(time_limit)
    find_first_plan(kept, list(searched(question)))
    assert len(kept.best.stages) == 2
    assert len(kept.context.simulated) == simulated


@pytest.mark.parametrize(("time_limit", "drafted"), [(0.0, 1), (math.inf, 3)])
def test_where_the_time_is_up_the_draft_is_of_the_first_shape_that_fits(time_limit, drafted, monkeypatch):
    question = on_one_cluster(8, 64, nodes=4, wishes=replace(SEARCHED_ONCE, dp=None, microbatch_size=None))
    kept, estimated = incumbent(question, Budgets(draft_shapes=3)), []
    kept.limit = TimeLimit(time_limit)

    def counted(context, shape, *others, **more):
        estimated.append(kept.draft)
        return estimates(context, shape, *others, **more)

    monkeypatch.setattr(first_plan, "estimates", counted)
    find_first_plan(kept, list(searched(question)))
    assert estimated.count(None) == drafted


def test_before_many_shapes_with_experts_are_ranked_one_that_fits_is_simulated():
    """It changes nothing but when some plan is known."""
    dense = on_two_clusters(8, 32, Wishes(schedule="1f1b", zero_stage=1, ep=2), nodes=2)
    model = replace(dense.workload.model, experts=4, experts_per_token=2)
    question = replace(dense, workload=replace(dense.workload, model=model))
    found, steps = [], []
    for costly in (1, 1000):
        kept, states = incumbent(question, Budgets(costly_shapes=costly)), []
        kept.context.watch = states.append
        find_first_plan(kept, list(searched(kept.request)))
        found.append(kept.best)
        steps.append([state.step_s for state in states if state.activity == "estimating layouts"])
    assert found[0] == found[1] is not None
    assert len(steps[0]) == 2 and steps[0][1:] == steps[1]


def sites_joined_by_10_gbit_s() -> Request:
    """Two sites of 32 A100, tp 2, without a time limit."""
    topology = edited(commands.load("two-sites-trunk"), {"links[0].bandwidth": "10 Gbit/s", "workload.global_batch_size": 384})
    wishes = Wishes(tp=2, microbatch_size=2, recompute="none", schedule="1f1b")
    return Request(topology, commands.workload_of(topology), wishes, math.inf)


@more
def test_a_plan_on_one_site_is_not_missed_where_the_trunk_is_slow():
    """With 10 Gbit/s between two sites, a plan on one of them takes 15.45 s. Replicas share the trunk, so that pipelines across
    it take longer than estimated: the fastest of those that the estimates choose takes 18 s."""
    kept = incumbent(sites_joined_by_10_gbit_s())
    find_first_plan(kept, list(searched(kept.request)))
    assert kept.best is not None
    assert step(kept.best) <= 15.8


def test_plans_on_one_site_are_simulated_in_the_order_of_their_estimates():
    """By the quick estimate pp 14 with one replica is the fastest on one site, in 12.8 s; its pipelines are estimated at
    18.7 s, those of eight replicas at 15.7 s, and only these are simulated."""
    kept = incumbent(sites_joined_by_10_gbit_s(), Budgets(first_tries=0, mixed_tries=0, alone_tries=1))
    find_first_plan(kept, list(searched(kept.request)))
    alone = [plan for plan in kept.context.simulated if len({device.cluster for device in plan.placement}) == 1]
    assert alone and all(plan.config.dp == 8 for plan in alone)
    assert step(kept.best) <= 15.8


@pytest.mark.parametrize(("seed", "saved"), after(0, [(0, 0.13), (3, 0.06), (4, 0.04)]))
def test_stages_of_many_classes_are_changed_under_1f1b_as_well(seed: int, saved: float):
    """Six clusters: few orders and numbers of stages are estimated, and the local search over stages finds faster ones."""
    question = many_clusters(seed, 6, layers=14, batch=12)
    question, steps = replace(question, wishes=replace(question.wishes, schedule="1f1b")), []
    for budgets in (Budgets(), replace(Budgets(), restaged_shapes=0)):
        kept = incumbent(question, budgets)
        find_first_plan(kept, list(searched(question)))
        steps.append(kept.cutoff)
    assert steps[0] <= (1 - saved) * steps[1]
