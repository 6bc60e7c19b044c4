"""Stages of unlike data-parallel degree: messages of some samples, timed by hand, and plans that they are equal to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.analytic.equal_replicas import replica_classes
from sim.analytic.evaluator import evaluate
from sim.analytic.plan_costs import step_seconds, upper_bound_seconds
from sim.engine.engine import simulate, simulate_at_length
from sim.engine.symmetry import unfolded
from sim.hardware.cluster import Trunk
from sim.kernels import compute
from sim.results.report import predict
from tests import builders as make

SAMPLE = 64 * 96 * 2
"""Bytes of the activations of one sample: 64 tokens of 96 bf16 values."""


def nodes(many: int, devices: int = 4, bandwidth: float = 1e6):
    """Nodes of quick devices, each with one NIC of `bandwidth` bytes a second."""
    return make.fleet(make.cluster(nodes=many, devices=devices, nics=(make.nic(bandwidth=bandwidth),)))


@pytest.mark.parametrize(
    ("dp", "tp", "placed"),
    [
        ((1, 4), (1, 1), (0, *range(4, 8))),
        ((4, 1), (1, 1), (*range(4), 4)),
        ((2, 4), (1, 1), (0, 1, *range(4, 8))),
        ((1, 2), (4, 2), tuple(range(8))),
        ((4, 1), (1, 4), tuple(range(8))),
    ],
)
@pytest.mark.parametrize("folding", [True, False])
def test_a_message_moves_all_samples_once_whatever_the_degrees(dp, tp, placed, folding):
    """One node sends to the other: the NIC carries the activations of the four samples of a microbatch of each replica, in as
    many parts as the stage with more ranks has."""
    unlike = {"stage_tp": tp} if len(set(tp)) > 1 else {}
    _check_messages(dp, tp, placed, folding, unlike)


@pytest.mark.parametrize(
    ("dp", "tp", "cp", "placed"),
    [
        ((1, 2), (1, 1), (2, 2), (0, 1, *range(4, 8))),
        ((2, 1), (1, 1), (1, 2), (0, 1, 4, 5)),
        ((1, 2), (1, 1), (1, 2), (0, *range(4, 8))),
        ((1, 2), (2, 1), (2, 2), tuple(range(8))),
    ],
)
@pytest.mark.parametrize("folding", [True, False])
def test_a_message_moves_all_tokens_once_whatever_the_degrees(dp, tp, cp, placed, folding):
    """The same where ranks divide sequences, too."""
    unlike = {"stage_tp": tp} if len(set(tp)) > 1 else {}
    unlike |= {"stage_cp": cp, "cp": min(cp)} if len(set(cp)) > 1 else {"cp": cp[0]}
    _check_messages(dp, tp, placed, folding, unlike)


def _check_messages(dp, tp, placed, folding, unlike):
    machines = nodes(2)
    devices = make.every_device(machines)
    plan = make.plan(
        machines, max(tp), 2, min(dp), placement=tuple(devices[index] for index in placed), sequence_parallel=max(tp) > 1,
        stage_dp=dp, microbatch_size=4, **unlike,
    )  # fmt: skip
    timeline = simulate(plan) if folding else simulate_at_length(plan, unfolded(plan))
    ahead = [span for span in timeline.spans if span.lane == "send"]
    assert {round(span.seconds * 1e6 / (4 * min(dp) * SAMPLE), 6) for span in ahead} == {1.0}


def test_timetable_of_two_stages_that_divide_samples_unlike(free_ends: None) -> None:
    """1F1B, two microbatches of two samples: rank 0 computes both samples, ranks 1 and 2 one each. Half a message takes `half`
    seconds alone on a NIC; both halves leave rank 0, and come back to it, at the same time."""
    machines = nodes(3, devices=1, bandwidth=1e9)
    plan = make.plan(machines, 1, 2, 1, microbatches=2, stage_dp=(1, 2), microbatch_size=2, zero_stage=0)
    device, half = plan.fleet.spec(plan.placement[0]), SAMPLE / 1e9
    seconds = [compute.layer_seconds(device, plan.workload, plan.config.of_pp_rank(pp_rank)) for pp_rank in (0, 1)]
    (f, b), (f1, b1) = ((2 * ahead, 2 * back) for ahead, back in seconds)
    come = f + 2 * half  # the first microbatch is on ranks 1 and 2
    sent = come + f1 + b1 + 2 * half  # its gradients are on rank 0
    again = max(sent, 2 * f + 4 * half)  # ranks 1 and 2 have sent them, and the second microbatch is there
    last = max(again + b, again + f1 + b1 + 2 * half)
    expected = [
        (0, "F0", 0.0, f),
        (0, "F1", come, come + f),
        (0, "B0", again, again + b),
        (0, "B1", last, last + b),
    ]
    for rank in (1, 2):
        expected += [
            (rank, "F0", come, come + f1),
            (rank, "B0", come + f1, come + f1 + b1),
            (rank, "F1", again, again + f1),
            (rank, "B1", again + f1, again + f1 + b1),
        ]
    timeline = simulate_at_length(plan, unfolded(plan))
    done = [(s.rank, s.name, s.start, s.end) for rank in range(3) for s in timeline.of(rank) if s.kind in ("F", "B")]
    assert [row[:2] for row in done] == [row[:2] for row in expected]
    assert [row[2:] for row in done] == [pytest.approx(row[2:], rel=1e-9, abs=1e-15) for row in expected]
    assert simulate(plan).alike == ((0,), (1, 2))


def test_gradients_of_a_stage_are_summed_over_all_its_ranks():
    """A ring of n ranks moves 2 (n - 1) / n of the gradients of two layers, in fp32, over each NIC."""
    plan = make.plan(nodes(6, devices=1), 1, 2, 2, stage_dp=(2, 4), microbatch_size=2, zero_stage=0, overlap_grad_reduce=False)
    layers = 2 * plan.workload.model.layer_parameters
    ends = {0: plan.workload.model.embedding_parameters, 1: plan.workload.model.head_parameters}
    for stage, (first, n) in enumerate(((0, 2), (2, 4))):
        (found,) = (span for span in simulate(plan).of(first) if span.kind == "collective" and span.group == "dp")
        assert found.seconds == pytest.approx(2 * (n - 1) / n * 4 * (layers + ends[stage]) / 1e6, rel=1e-9)


@pytest.mark.parametrize("zero_stage", [0, 1, 2])
@pytest.mark.parametrize("schedule", ["1f1b", "zb-h2"])
def test_equal_splits_of_all_stages_are_more_replicas_of_smaller_microbatches(schedule, zero_stage):
    """The last rank of both plans has nothing to do. All others divide microbatches of four samples among two ranks, or there
    are twice as many replicas with microbatches of two: the same programs, messages and sums."""
    machines = nodes(7, devices=2, bandwidth=1e8)
    devices = make.every_device(machines)
    options = {"layers": (2, 3, 0), "head": 1, "microbatches": 5, "schedule": schedule, "zero_stage": zero_stage}
    split = make.plan(machines, 1, 3, 2, placement=devices, stage_dp=(4, 4, 2), microbatch_size=4, **options)
    whole = make.plan(machines, 1, 3, 4, placement=devices, microbatch_size=2, **options)
    assert split.workload == whole.workload
    one, other = simulate(split), simulate(whole)
    assert one.step_s == other.step_s
    for rank in range(8):
        assert [span for span in one.of(rank) if span.kind != "bubble"] == [
            span for span in other.of(rank) if span.kind != "bubble"
        ]
    assert evaluate([split]) == evaluate([whole])
    assert step_seconds(split) == step_seconds(whole)
    assert predict(split, one).peak_memory_bytes[:2] == predict(whole, other).peak_memory_bytes[:2]


def test_a_tied_embedding_of_equally_divided_ends_is_summed_pair_by_pair():
    """768 words of 96 values in fp32 cross each NIC both ways once for each of the two pairs on its node."""
    machines = nodes(3, devices=2)
    devices = make.every_device(machines)
    plan = make.plan(
        machines, 1, 3, 1, placement=(*devices[:3], *devices[4:]), stage_dp=(2, 1, 2), microbatch_size=2,
        shape={"tied_embeddings": True},
    )  # fmt: skip
    sums = [span for span in simulate(plan).spans if span.group == "embedding" and span.kind == "collective"]
    assert {round(span.seconds * 1e6 / (768 * 96 * 4), 6) for span in sums} == {2.0}


SHAPES = [
    ((1, 2), (1, 1)),
    ((4, 1), (1, 1)),
    ((2, 1), (1, 2)),
    ((1, 2), (4, 2)),
    ((2, 1, 4), (1, 1, 1)),
    ((1, 2, 1), (2, 1, 2)),
    ((1, 4, 4, 2), (1, 1, 1, 1)),
]
"""Ranks that divide the samples, and tp, of each stage."""


@given(
    shape=st.sampled_from(SHAPES),
    dp=st.integers(1, 2),
    schedule=st.sampled_from(["1f1b", "gpipe", "zb-h1", "zb-h2"]),
    microbatches=st.integers(1, 5),
    zero_stage=st.integers(0, 3),
    sequence_parallel=st.booleans(),
)
def test_the_evaluator_has_the_engine_s_step_and_the_closed_form_is_below(
    shape, dp, schedule, microbatches, zero_stage, sequence_parallel
):
    """On nodes that no two stages and no two replicas share, messages contend with the gradients of several ranks, and with
    each other where a stage receives from both sides."""
    splits, degrees = shape
    machines = make.fleet(make.cluster(nodes=dp * len(degrees), devices=4, nics=(make.nic(bandwidth=1e8, count=4),)))
    devices = make.every_device(machines)
    placed = tuple(
        devices[4 * (dp * stage + replica) + index]
        for stage, (tp, split) in enumerate(zip(degrees, splits, strict=True))
        for replica in range(dp)
        for index in range(tp * split)
    )
    unlike = {"stage_tp": degrees} if len(set(degrees)) > 1 else {}
    plan = make.plan(
        machines, max(degrees), len(degrees), dp, microbatches=microbatches, placement=placed, schedule=schedule,
        stage_dp=tuple(dp * split for split in splits), microbatch_size=4, zero_stage=zero_stage,
        sequence_parallel=sequence_parallel and max(degrees) > 1, **unlike,
    )  # fmt: skip
    step = simulate(plan).step_s
    assert simulate_at_length(plan, unfolded(plan)).step_s == pytest.approx(step, rel=1e-9)
    evaluated, closed = float(evaluate([plan])[0]), step_seconds(plan)
    assert evaluated <= step * (1 + 1e-9)
    assert dp > 1 or len(degrees) > 2 or evaluated == pytest.approx(step, rel=1e-9)
    assert closed <= evaluated * (1 + 1e-9)
    assert upper_bound_seconds(plan) <= step


def test_slow_ranks_with_other_samples_do_not_add_up():
    """Ranks 1 and 2 divide the samples of a microbatch, and ranks 3 and 4 go on with half of them each. Rank 1 and rank 4 are
    slow: no sample meets both, so the closed form does not count both."""
    fast, slow = (make.cluster(name, 3, 1, spec=make.device(name, speed)) for name, speed in (("fast", 1e12), ("slow", 1e10)))
    machines = make.fleet(fast, slow, trunks=(Trunk(("fast", "slow"), "infiniband", 1e12, 0.0),))
    by_name = {str(device): device for device in make.every_device(machines)}
    order = ("fast/node0/dev0", "slow/node0/dev0", "fast/node1/dev0", "fast/node2/dev0", "slow/node1/dev0")
    plan = make.plan(machines, 1, 3, 1, placement=tuple(by_name[name] for name in order), stage_dp=(1, 2, 2), microbatch_size=2)
    assert replica_classes(plan) == ((0,), (1,))
    step = simulate(plan).step_s
    evaluated = float(evaluate([plan])[0])
    assert step_seconds(plan) <= evaluated * (1 + 1e-9) and evaluated <= step * (1 + 1e-9)
    assert evaluated == pytest.approx(step, rel=1e-3)  # that first messages to both ranks share a NIC is neglected
