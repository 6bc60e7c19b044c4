"""Stages of unlike tensor-parallel degrees: messages, and sums of a tied embedding, timed by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.analytic.evaluator import evaluate
from sim.analytic.plan_costs import step_seconds
from sim.engine.engine import simulate, simulate_at_length
from sim.engine.symmetry import unfolded
from tests import builders as make

ACTIVATIONS = 64 * 96 * 2
"""Bytes of the activations of one microbatch: 64 tokens of 96 bf16 values."""


def two_nodes(devices: int = 4, bandwidth: float = 1e6):
    """Two nodes of quick devices, each with one NIC of `bandwidth` bytes a second."""
    return make.fleet(make.cluster(nodes=2, devices=devices, nics=(make.nic(bandwidth=bandwidth),)))


@pytest.mark.parametrize(
    ("degrees", "placed"),
    [((1, 4), (0, *range(4, 8))), ((4, 1), (*range(4), 4)), ((2, 4), (0, 1, *range(4, 8))), ((4, 4), tuple(range(8)))],
)
@pytest.mark.parametrize("folding", [True, False])
def test_a_message_moves_all_activations_once_whatever_the_degrees(degrees, placed, folding):
    """One node sends to the other: the NIC carries the whole hidden state, cut into as many slices as the wider stage has."""
    machines = two_nodes()
    devices = make.every_device(machines)
    unlike = {"stage_tp": degrees} if len(set(degrees)) > 1 else {}
    plan = make.plan(
        machines, max(degrees), 2, placement=tuple(devices[index] for index in placed), sequence_parallel=True, **unlike
    )
    timeline = simulate(plan) if folding else simulate_at_length(plan, unfolded(plan))
    ahead = [span for span in timeline.spans if span.lane == "send"]
    assert {round(span.seconds * 1e6 / ACTIVATIONS, 6) for span in ahead} == {1.0}


def test_ranks_of_a_narrow_stage_send_a_slice_to_each_rank_of_a_wide_one():
    plan = make.plan(two_nodes(), 4, 2, stage_tp=(1, 4), placement=make.every_device(two_nodes())[3:], sequence_parallel=True)
    timeline = simulate_at_length(plan, unfolded(plan))
    assert [len([s for s in timeline.of(rank) if s.lane == "send"]) for rank in range(5)] == [4, 0, 0, 0, 0]
    assert [len([s for s in timeline.of(rank) if s.lane == "return"]) for rank in range(5)] == [0, 1, 1, 1, 1]
    arrivals = {span.end for span in timeline.spans if span.lane == "send"}
    begins = {min(s.start for s in timeline.of(rank) if s.kind == "F") for rank in range(1, 5)}
    assert len(arrivals) == 1 and begins == arrivals


def test_a_tied_embedding_is_summed_part_by_part():
    """768 words of 96 values in fp32 cross the NIC both ways once, half of them beside each rank of the wide stage."""
    machines = two_nodes(2)
    plan = make.plan(
        machines,
        2,
        2,
        stage_tp=(1, 2),
        placement=make.every_device(machines)[1:],
        shape={"tied_embeddings": True},
        zero_stage=0,
    )
    sums = [span for span in simulate(plan).spans if span.group == "embedding" and span.kind == "collective"]
    assert {round(span.seconds * 1e6 / (768 * 96 * 4), 6) for span in sums} == {1.0}


@given(
    degrees=st.sampled_from([(1, 2), (4, 1), (2, 1, 4), (1, 4, 4, 2)]),
    dp=st.integers(1, 2),
    schedule=st.sampled_from(["1f1b", "gpipe", "zb-h1", "zb-h2"]),
    microbatches=st.integers(1, 6),
    zero_stage=st.integers(0, 3),
    sequence_parallel=st.booleans(),
)
def test_the_evaluator_has_the_engine_s_step_and_the_closed_form_is_below(
    degrees, dp, schedule, microbatches, zero_stage, sequence_parallel
):
    """On nodes that no two stages share, messages contend with the gradients of several replicas, and with each other where a
    stage receives from both sides."""
    machines = make.fleet(make.cluster(nodes=dp * len(degrees), devices=4, nics=(make.nic(bandwidth=1e8, count=4),)))
    devices = make.every_device(machines)
    placed = tuple(
        devices[4 * (dp * stage + replica) + index]
        for stage, tp in enumerate(degrees)
        for replica in range(dp)
        for index in range(tp)
    )
    plan = make.plan(
        machines, max(degrees), len(degrees), dp, microbatches=microbatches, placement=placed, stage_tp=degrees,
        schedule=schedule, zero_stage=zero_stage, sequence_parallel=sequence_parallel,
    )  # fmt: skip
    step = simulate(plan).step_s
    assert float(evaluate([plan])[0]) <= step * (1 + 1e-9)
    assert dp > 1 or len(degrees) > 2 or float(evaluate([plan])[0]) == pytest.approx(step, rel=1e-9)
    assert step_seconds(plan) <= step * (1 + 1e-9)
