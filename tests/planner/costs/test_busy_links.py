"""No simulated step is below the bound of the busiest links, which counts the messages of nodes by hand here."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from planner.costs.busy_links import BusyLink, Turns, busy_links, least_steps
from planner.costs.context import PlanningContext
from planner.placement.simulation import simulate_plan, step
from tests import builders as make
from tests.planner.builders import Drawn, drawn_plans, request, shape
from tests.planner.costs.test_message_loads import BYTES, on_nodes
from tests.planner.search.searches import candidate, simulated

MESSAGE = pytest.approx(BYTES / 1e7)


def links(nodes: int, vpp: int = 1) -> list[BusyLink]:
    """The busiest links of a pipeline with a stage on each node."""
    question = on_nodes(nodes)
    one = shape(schedule="interleaved" if vpp > 1 else "1f1b", vpp=vpp)
    (cluster,) = question.clusters()
    ends = [(cluster, stage) for stage in range(nodes)]
    return busy_links(PlanningContext(question).loads, ends, one, "ethernet")


def test_the_first_node_sends_activations_and_the_last_one_gradients():
    assert sorted(links(2)) == [BusyLink(MESSAGE, -1, -1, 1, 1, 0.0), BusyLink(MESSAGE, 0, 0, -1, -1, MESSAGE)]


def test_a_middle_node_sends_both_and_receives_both():
    """It sends after stage 1; and it receives what stages 0 and 2 send to it."""
    busiest = [link for link in links(3) if link.seconds == pytest.approx(2 * BYTES / 1e7)]
    assert sorted(link[1:] for link in busiest) == [(0, 0, 2, 2, MESSAGE), (1, 1, 1, 1, MESSAGE)]


def test_virtual_stages_send_from_the_first_chunk_to_the_last():
    """Two stages with vpp 2 are virtual stages 0 and 2 on the first node, which sends after both, and gradients after 2."""
    assert BusyLink(pytest.approx(3 * BYTES / 1e7), 0, 2, 2, 2, pytest.approx(2 * BYTES / 1e7)) in links(2, vpp=2)


def both_ways(stage: int) -> BusyLink:
    """The link over which a node with one stage sends, 2 s of activations and 1 s of gradients for a microbatch."""
    return BusyLink(3.0, stage, stage, stage, stage, 2.0)


def test_turns_of_the_second_of_four_stages():
    """Three forwards before its first backward, and three backwards behind its last forward: of ten microbatches, nine
    activations and seven gradients have left by then."""
    turns = Turns.of(both_ways(1), "1f1b", 4, 10)
    assert turns == Turns(1, 1, 3, 3)
    assert turns.work(both_ways(1), 10) == 9 * 2.0 + 7 * 1.0


def test_turns_of_what_a_node_receives():
    """It receives activations of stage 0, with four forwards before its first backward, and gradients of stage 2. When the last
    forward of stage 0 ends, four backwards are left, also on stage 2."""
    assert Turns.of(BusyLink(3.0, 0, 0, 2, 2, 2.0), "1f1b", 4, 10) == Turns(0, 2, 4, 4)


def test_with_few_microbatches_nothing_is_known_before_the_last_forward():
    """Replicas with more of them may have three forwards before their first backward."""
    turns = Turns.of(both_ways(1), "1f1b", 4, 2)
    assert turns == Turns(1, 1, 3, 2)
    assert turns.work(both_ways(1), 2) == 0.0


@pytest.mark.parametrize("schedule", ["1f1b-deepspeed", "interleaved", "zb-h1"])
def test_turns_are_known_where_sends_block_and_nothing_is_received_before(schedule):
    assert Turns.of(both_ways(1), schedule, 4, 10) is None


def test_turns_are_known_of_links_of_one_stage_each_way():
    assert Turns.of(BusyLink(3.0, 0, 1, 2, 2, 2.0), "1f1b", 4, 10) is None
    assert Turns.of(BusyLink(3.0, 1, 1, -1, -1, 3.0), "1f1b", 4, 10) is None


def test_replicas_that_cross_other_nodes_have_no_busy_links():
    """Stages of two replicas on nodes of three devices: the second one's messages cross another border."""
    (cluster,) = on_nodes(3, devices=3).clusters()
    ends = [(cluster, stage) for stage in range(3)]
    loads = PlanningContext(on_nodes(3, devices=3)).loads
    assert busy_links(loads, ends, shape(dp=2), "ethernet") == []
    assert busy_links(loads, ends, shape(dp=3), "ethernet")


@given(drawn_plans(least_stages=2))
def test_no_step_is_below_the_bound_of_the_busiest_links(drawn: Drawn):
    found = candidate(PlanningContext(drawn.request), drawn.shape, drawn.stages, least=True)
    of, pipeline = found.evaluation, found.pipeline
    busy = of.busy_links_of(tuple(i for i, _ in pipeline))
    m = drawn.shape.least_microbatches(drawn.request.workload)
    (bound,) = least_steps(of.candidates([pipeline]), busy, m)
    assert of.link_seconds(pipeline) <= bound <= step(simulate_plan(drawn.plan)) * (1 + 1e-9)


@given(st.integers(0, 100_000))
def test_no_step_is_below_this_bound_where_replicas_share_slow_nics(seed: int):
    """1F1B on nodes of one to four devices, with messages as long as compute."""
    rng = random.Random(seed)
    nodes, devices, layers, zero = rng.randint(3, 5), rng.choice([1, 2, 4]), rng.choice([6, 8, 12]), rng.randint(0, 3)
    nic = make.nic("ethernet", 10 ** rng.uniform(5.5, 7))
    spec = make.device("chip", 10 ** rng.uniform(8.5, 10.5), 1e10, memory=1e13)
    machines = make.cluster("c", nodes, devices, (nic,), spec=spec, intra_node=make.wire(bandwidth=1e8))
    one = shape(dp=rng.choice([1, 2, 4]), zero_stage=zero, overlap_param_gather=rng.random() < 0.5)
    more = rng.randint(0, one.dp - 1) if zero < 2 else 0
    question = request(make.fleet(machines), make.model(layers), one.dp * rng.choice([3, 5, 8, 13]) + more)
    pp = min(nodes * devices // one.dp, layers)
    assume(pp > 1)
    cuts = sorted(rng.sample(range(1, layers), pp - 1))
    stages = tuple(("c", b - a) for a, b in itertools.pairwise((0, *cuts, layers)))
    found = candidate(PlanningContext(question), one, stages, least=True)
    of, m = found.evaluation, one.least_microbatches(question.workload)
    (bound,) = least_steps(of.candidates([found.pipeline]), of.busy_links_of((0,) * pp), m)
    assert bound <= step(simulated(question, one, *stages)) * (1 + 1e-9)
