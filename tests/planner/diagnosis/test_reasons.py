"""Verdicts on shapes: the seconds of the best pipeline, or the memory that is missing."""

from __future__ import annotations

import math

import pytest

from planner import api
from planner.costs.context import PlanningContext
from planner.costs.node_classes import node_classes
from planner.diagnosis import reasons
from planner.diagnosis.reasons import verdicts
from planner.request import Wishes
from planner.search.candidates import estimates
from planner.space.shapes import searched, variants
from sim.hardware.cluster import Cluster, Trunk
from sim.hardware.memory_facts import WORKSPACE
from tests import builders as make
from tests.more import after
from tests.planner import outside_torch
from tests.planner.builders import SEARCHED_ONCE, on_one_cluster, on_two_clusters, plan_of, request
from tests.planner.unlike import question


def test_verdicts_are_sorted_and_name_the_bottleneck():
    found = verdicts(PlanningContext(on_one_cluster(layers=4, nodes=2, wishes=SEARCHED_ONCE)), 3)
    assert [verdict.shape.dp for verdict in found] != []
    assert [verdict.seconds for verdict in found] == sorted(verdict.seconds for verdict in found)
    assert all(verdict.why.startswith(("stage ", "messages ")) for verdict in found)


def test_a_lack_of_memory_is_a_verdict():
    question = on_one_cluster(layers=4, nodes=2, wishes=SEARCHED_ONCE, spec=make.device(memory=outside_torch.CONTEXT))
    found = verdicts(PlanningContext(question), 1)
    assert {verdict.seconds for verdict in found} == {math.inf}
    assert any(
        verdict.why
        == "memory: c has devices for up to 2 stages, and each holds up to 0 of the model's 4 layers beside one microbatch"
        for verdict in found
    )


def test_a_verdict_is_the_best_estimate_of_all_variants_of_a_shape():
    question = on_one_cluster(layers=4, nodes=2, wishes=SEARCHED_ONCE)
    context = PlanningContext(question)
    best = {
        base.dp: min(
            estimate.seconds
            for variant in variants(question, base)
            for estimate in estimates(context, variant, node_classes(context, variant))
        )
        for base in searched(question)
    }
    found = verdicts(context, 9)
    assert {verdict.shape.dp: verdict.seconds for verdict in found} == best
    assert [(verdict.shape.dp, verdict.shape.schedule, verdict.shape.vpp) for verdict in found] == [
        (1, "zb-h2", 1), (2, "1f1b", 1)
    ]  # fmt: skip


def test_a_verdict_names_the_stage_that_ends_the_step():
    (found,) = verdicts(PlanningContext(on_two_clusters(batch=8, wishes=SEARCHED_ONCE)), 2)
    assert found.why == "stage 1 (1 layer on b): begins at 35.7 ms, 8 microbatches of 78.8 ms, 6.32 ms after the last"
    assert found.seconds == pytest.approx(0.0357 + 8 * 0.0788 + 0.00632, rel=5e-3)


def test_only_the_most_promising_shapes_that_fit_have_verdicts():
    question = on_one_cluster(layers=4, nodes=2, wishes=SEARCHED_ONCE)
    assert [len(verdicts(PlanningContext(question), most)) for most in (0, 1, 2, 9)] == [0, 1, 2, 2]


def test_verdicts_end_with_their_time(monkeypatch):
    monkeypatch.setattr(reasons, "SECONDS", 0.0)
    context = PlanningContext(on_one_cluster(layers=4, nodes=2, wishes=SEARCHED_ONCE))
    context.limit.reserve(context.limit.seconds_left)
    assert len(verdicts(context, 9)) == 1


@pytest.mark.parametrize(
    ("nodes", "told"),
    [
        (4, "a has devices for up to 4 stages, and each holds up to 1"),
        (1, "b has devices for up to 1 stage, and each holds up to 2"),
    ],
)
def test_memory_is_told_of_the_class_that_holds_most_of_the_model(nodes: int, told: str):
    """One layer fits a device of cluster a, two fit the one device of cluster b: more than one of a, less than four."""

    def cluster(name: str, nodes: int, nbytes: float) -> Cluster:
        return make.cluster(name, nodes, spec=make.device(memory=outside_torch.CONTEXT + WORKSPACE + nbytes))

    clusters = cluster("a", nodes, 4e6), cluster("b", 1, 6e6)
    machines = make.fleet(*clusters, trunks=(Trunk(("a", "b"), "infiniband", 1e10, 0.0),))
    question = request(machines, make.model(12), 4, Wishes(tp=1, dp=1, microbatch_size=1, recompute="none"))
    (found,) = verdicts(PlanningContext(question), 0)
    assert found.seconds == math.inf
    assert found.why == f"memory: {told} of the model's 12 layers beside one microbatch"


def test_layers_that_fit_without_the_ends_and_further_microbatches_are_told():
    """Six of twelve layers fit each of two devices, but not with the embedding or the head beside them."""
    machines = make.fleet(make.cluster("a", 2, spec=make.device(memory=outside_torch.CONTEXT + WORKSPACE + 14e6)))
    question = request(machines, make.model(12), 4, Wishes(tp=1, dp=1, microbatch_size=1, recompute="none"))
    (found,) = verdicts(PlanningContext(question), 0)
    assert found.why == (
        "memory: 2 stages on a hold the 12 layers beside one microbatch, but not the embedding, the head and all microbatches "
        "in flight, too"
    )


def test_verdicts_on_a_model_whose_layers_differ_are_those_of_its_stand_in():
    context = PlanningContext(question())
    api.plan(context.request, context=context)
    (found,) = verdicts(context, 2)
    assert (found.shape.tp, found.shape.dp, found.shape.schedule) == (1, 1, "1f1b")
    assert 0 < found.seconds < math.inf


@pytest.mark.parametrize(("layers", "batch"), after(1, [(16, 8), (32, 16)]))
def test_no_layout_is_told_to_be_faster_than_the_bound_of_the_certificate(layers, batch):
    question = on_two_clusters(layers=layers, batch=batch, nodes=4, wishes=SEARCHED_ONCE)
    plan = plan_of(question)
    found = [verdict.seconds for verdict in verdicts(PlanningContext(question), 12)]
    assert min(found) >= plan.certificate.lower_bound_s * (1 - 1e-9)
