"""Seconds of the all-reduce of a tied embedding between the first and the last stage."""

from __future__ import annotations

import math

import pytest

from planner.costs.context import PlanningContext
from planner.costs.mixed_stages import MixedStageCosts
from planner.costs.node_classes import node_classes
from planner.placement.ranks import build
from planner.search.candidates import priced
from planner.space.device_slots import Run
from planner.space.shape import Shape
from sim.analytic import plan_costs
from sim.analytic.evaluator import evaluate
from tests import builders as make
from tests.planner.builders import request, shape
from tests.planner.real_nodes import tied_on_pcie


@pytest.mark.parametrize("pp", range(2, 9))
def test_a_tied_embedding_is_summed_on_the_cluster_of_the_last_stage(pp):
    """Up to four stages share a node of 6 GB/s; the fifth and later ones are reached over NICs of 50 GB/s."""
    question = tied_on_pcie()
    context, shape = PlanningContext(question), Shape(1, 1, 1, "none", "1f1b", 1, 1)
    (option,) = node_classes(context, shape)
    layers = [42 // pp + (pp_rank < 42 % pp) for pp_rank in range(pp)]
    plan = build(question, shape, tuple(("a", k) for k in layers), "by hand")
    nic = context.fleets.nic_of((option.cluster,))
    seconds = context.tied.seconds(option.cluster, option.cluster, pp - 1, shape, nic)
    assert seconds == pytest.approx(plan_costs.tied_seconds(plan_costs.PlanCosts(plan)), rel=1e-12)
    assert (seconds > 0.7) == (pp <= 4)
    assert context.tied.least(option.cluster, option.cluster, shape, 8, nic) <= seconds
    (draft,) = priced(context, shape, (option,), [tuple((0, k) for k in layers)], 1)
    assert draft.seconds == pytest.approx(float(evaluate([plan])[0]), rel=1e-9)


def test_the_all_reduce_of_an_embedding_by_hand():
    """768 words of 96 values of 4 bytes, summed by two ranks: each sends half of them twice, over 1e7 bytes a second."""
    nics = (make.nic("ethernet", 1e7),)
    fleet = make.fleet(make.cluster("c", 3, nics=nics))
    tied, untied = (request(fleet, make.model(4, tied_embeddings=way)) for way in (True, False))
    nbytes = 768 * 96 * 4
    for question, seconds in ((tied, nbytes / 1e7), (untied, 0.0)):
        costs, (cluster,) = PlanningContext(question).tied, question.clusters()
        assert costs.seconds(cluster, cluster, 2, shape(), "ethernet") == pytest.approx(seconds)
        assert costs.least(cluster, cluster, shape(), 3) == pytest.approx(seconds)
    costs, (cluster,) = PlanningContext(tied).tied, tied.clusters()
    assert costs.least(cluster, cluster, shape(), 1) == math.inf, "a pipeline of one stage has no sum"


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("nics", [2, 3])
def test_where_ranks_reduce_at_unlike_speeds_one_sum_counts(nics, overlap):
    """Three tp ranks share two NICs, or have three; the sum is over the one Ethernet NIC of a node."""
    machines = make.fleet(make.cluster("c", 4, 3, (make.nic("roce", 1e8, count=nics), make.nic("ethernet", 1e9))))
    question = request(machines, make.model(4, tied_embeddings=True, vocab=76800))
    context, (cluster,) = PlanningContext(question), question.clusters()
    by_three = shape(tp=3, dp=2, overlap_param_gather=overlap)
    one, together = 76800 * 96 / 3 * 4 / 1e9, nics == 3
    seconds = context.tied.seconds(cluster, cluster, 1, by_three, "ethernet")
    assert seconds == pytest.approx(3 * one if together else one * overlap)
    mixed, runs = MixedStageCosts(context), (Run(cluster, 0, 2), Run(cluster, 2, 2))
    assert mixed.reduce_together(by_three, [(run,) for run in runs]) == together
    assert mixed.peers.tied(by_three, runs, "ethernet", together) == pytest.approx(seconds)
