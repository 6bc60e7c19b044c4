"""Messages that a stage waits for because the stage before holds them: literal numbers, and a step that they fill."""

from __future__ import annotations

import random
from itertools import combinations, pairwise

import numpy as np
import pytest

from planner.bounds.ordered_stages import OrderedStages
from planner.bounds.stage_messages import Held, HeldForwards, Sends
from planner.bounds.whole_pipelines import least_steps
from planner.costs.context import PlanningContext
from planner.costs.node_classes import node_classes
from planner.placement.ranks import build
from planner.placement.simulation import simulate_plan, step
from planner.request import Request
from planner.search.evaluation import PipelineEvaluation
from planner.search.rough_estimate import rough_seconds
from sim.hardware.cluster import Trunk
from tests import builders as make
from tests import more
from tests.planner.builders import on_one_cluster, request, shape

MESSAGE = 12_288 / 1e5
"""Seconds of a message between two nodes."""


def stages_on_slow_links(schedule: str, microbatches: int = 16) -> tuple[OrderedStages, PipelineEvaluation]:
    """Stages of one device each, whose compute takes next to nothing beside their messages."""
    nics = (make.nic("ethernet", 1e5),)
    chip = make.device("chip", 1e15, 1e30)
    question = on_one_cluster(8, microbatches, nodes=4, devices=1, nics=nics, spec=chip)
    context, one = PlanningContext(question), shape(schedule=schedule)
    classes = node_classes(context, one)
    return OrderedStages(context, classes), PipelineEvaluation(context, one, tuple(classes))


def simulated(stages: OrderedStages, layers: tuple[int, ...]) -> float:
    """The step of a pipeline on the only cluster of these stages."""
    (cluster,) = stages.clusters
    return step(simulate_plan(build(stages.context.request, stages.shape, tuple((cluster.name, k) for k in layers), "by hand")))


def test_the_fewest_held_forwards_are_those_of_the_longest_pipeline():
    held = HeldForwards("1f1b-deepspeed", 16, 4)
    assert [held.number(stage, 4) for stage in range(4)] == [0, 13, 14, 15]
    assert held.number(None, 0) == 13
    assert HeldForwards("1f1b", 16, 4).number(None, 0) == 0
    assert HeldForwards("1f1b-deepspeed", 16, 1).number(None, 0) == 0


def test_a_stage_waits_for_its_held_messages_or_until_both_neighbours_have_sent_theirs():
    """Ten messages of 2 s. Of 5 s for both, a stage waits for what its passes and its gradient do not hide."""
    assert Held(10, 2.0, 2.0).seconds(1.0, 0.5) == 20.0
    assert Held(10, 2.0, 2.0, 5.0, 3.5).seconds(1.0, 0.5) == 10 * (5.0 - 1.0 + 0.5)
    assert Held(10, 2.0, 2.0, 5.0, 2.25).seconds(1.0, 0.5) == 10 * (5.0 - 1.0 + 0.25)
    assert Held(10, 2.0, 2.0, 5.0, 3.5).seconds(4.0, 0.5) == 20.0
    passes, backward = np.array([1.0, 4.0]), np.array([0.5, 0.5])
    assert Held(10, 2.0, 2.0, 5.0, 3.5).of_many(passes, backward).tolist() == [45.0, 20.0]
    assert Held(10, 2.0, 2.0).of_many(passes, backward).tolist() == [20.0, 20.0]


def test_an_inner_stage_waits_for_three_messages_of_each_microbatch_and_a_fourth_over_a_shared_nic():
    """Stage 1 of four has the first gradient behind five messages. Then it sends 24, and waits 13 times for two:
    activations and a gradient that begin when its own gradient has left. The last microbatch has four there and back, and one
    to stage 0."""
    stages, evaluation = stages_on_slow_links("1f1b-deepspeed")
    assert stages.sending(MESSAGE, MESSAGE, 2, 4).held.seconds(0.0, 0.0) == pytest.approx(14 * MESSAGE)
    (bound,) = least_steps(stages, [0, 0, 0, 0], np.array([[2, 2, 2, 2]]))
    ((evaluated, pipeline),) = evaluation.evaluated([((0, 2),) * 4])
    assert bound == pytest.approx((5 + 24 + 13 * 2 + 4 + 1) * MESSAGE, rel=1e-3)
    assert rough_seconds(evaluation, pipeline) <= bound <= evaluated <= simulated(stages, (2, 2, 2, 2)) * (1 + 1e-9)


def test_where_messages_are_not_held_a_stage_waits_for_two():
    stages, _ = stages_on_slow_links("1f1b")
    assert stages.sending(MESSAGE, MESSAGE, 2, 4) == Sends(MESSAGE, MESSAGE)
    (bound,) = least_steps(stages, [0, 0, 0, 0], np.array([[2, 2, 2, 2]]))
    assert (2 + 32 + 2 - 1) * MESSAGE <= bound < (2 + 32 + 14 + 2 - 1) * MESSAGE


@pytest.mark.parametrize("seed", more.after(12, range(60), last=30))
def test_no_bound_of_a_pipeline_of_deepspeed_is_above_its_step(seed):
    """Nodes of one to four devices that share slow NICs, several replicas and clusters; nor is what the evaluator says."""
    rng = random.Random(seed)
    question = drawn(rng)
    context, one = PlanningContext(question), shape(dp=rng.choice([1, 1, 2, 3]), schedule="1f1b-deepspeed")
    classes = node_classes(context, one)
    stages, evaluation = OrderedStages(context, classes), PipelineEvaluation(context, one, tuple(classes), least=True)
    counts = [rng.randint(1, option.max_stages) for option in classes]
    order = [i for i, count in enumerate(counts) for _ in range(count)]
    layers, pp = question.workload.model.layers, len(order)
    if pp < 3 or pp > layers or not stages.possible:
        return
    for _ in range(3):
        cuts = [0, *sorted(rng.sample(range(1, layers), pp - 1)), layers]
        split = tuple(b - a for a, b in pairwise(cuts))
        (bound,) = least_steps(stages, order, np.array([split]))
        ((evaluated, _),) = evaluation.evaluated([tuple(zip(order, split, strict=True))])
        plan = build(question, one, tuple((classes[i].cluster.name, k) for i, k in zip(order, split, strict=True)), "drawn")
        seconds = step(simulate_plan(plan)) * (1 + 1e-9)
        assert bound <= seconds and evaluated <= seconds


def drawn(rng: random.Random) -> Request:
    """One to three clusters on slow links, with a batch that dp 1, 2 and 3 divide."""
    clusters = []
    for name in "abc"[: rng.randint(1, 3)]:
        nics, spec = (make.nic("ethernet", rng.choice([1e5, 3e5, 1e6])),), make.device(name, rng.choice([1e9, 5e9, 1e11]), 1e9)
        inside = make.wire(bandwidth=rng.choice([1e6, 1e8]))
        clusters.append(make.cluster(name, rng.randint(3, 6), rng.choice([1, 1, 2, 4]), nics, spec, intra_node=inside))
    pairs = combinations([cluster.name for cluster in clusters], 2)
    trunks = tuple(Trunk(pair, "ethernet", rng.choice([1e5, 1e6]), rng.choice([0.0, 0.02])) for pair in pairs)
    return request(make.fleet(*clusters, trunks=trunks), make.model(12), rng.choice([12, 24, 36]))
