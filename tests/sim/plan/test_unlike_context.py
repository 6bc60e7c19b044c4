"""Stages of unlike context-parallel degrees: ranks, peers, groups, memory, steps, and checks."""

from __future__ import annotations

import pytest

from sim.analytic.evaluator import evaluate
from sim.engine.engine import simulate
from sim.errors import NotModelled, PlanError
from sim.kernels.lowering import program
from sim.kernels.memory import peak_memory
from sim.kernels.messages import Messages
from sim.plan.derived_groups import gradient_groups
from sim.plan.groups import group_ranks
from sim.plan.parallel_config import ParallelConfig
from tests import builders as make

TWO = {"pp": 2, "num_microbatches": (4,)}


def test_ranks_and_groups_of_each_stage():
    """Ranks 0 and 1 are those of two replicas on stage 0; on stage 1 each replica has two, 2 and 3, and 4 and 5."""
    config = ParallelConfig(pp=2, dp=2, num_microbatches=(4, 4), stage_cp=(1, 2))
    assert (config.world_size, config.cp, config.further_degrees) == (6, 1, {"cp": "1x1+2x1"})
    assert [config.coordinates(rank) for rank in range(6)] == [(0, 0, 0), (0, 1, 0), *((0, index, 1) for index in range(4))]
    peers = [config.peers(rank, 1 - config.coordinates(rank)[2]) for rank in range(6)]
    assert peers == [(2, 3), (4, 5), (0,), (0,), (1,), (1,)]
    assert list(group_ranks(config)) == [
        ("dp", (0, 1)), ("cp", (2, 3)), ("cp", (4, 5)), ("dp", (2, 4)), ("dp", (3, 5)),
        *(("pp", pair) for pair in ((0, 2), (0, 3), (1, 4), (1, 5))),
    ]  # fmt: skip
    assert (config.of_pp_rank(0).cp, config.of_pp_rank(1).cp, config.of_pp_rank(1).stage_cp) == (1, 2, ())


def test_gradients_are_summed_over_the_cp_and_dp_ranks_of_a_stage():
    plan = make.plan(make.fleet(make.cluster(devices=6)), pp=2, dp=2, stage_cp=(1, 2))
    assert [group.ranks for group in gradient_groups(plan)] == [(0, 1), (2, 3, 4, 5)]


def test_a_stage_has_the_memory_and_the_compute_of_a_plan_with_its_cp():
    """A message to two peers is cut in halves; the messages of a stage with cp 2 are as large in a plan where all have it."""
    machines = make.fleet(make.cluster(nodes=4, devices=1, nics=(make.nic(bandwidth=1e9),)))
    shared = {"pp": 2, "microbatches": 3, "layers": (2, 3)}
    every = [make.plan(machines, cp=cp, **shared) for cp in (1, 2)]
    unlike = make.plan(machines, stage_cp=(1, 2), **shared)
    assert peak_memory(unlike) == tuple(peak_memory(alike)[pp_rank] for pp_rank, alike in enumerate(every))
    assert program(unlike, 1, 3) == program(every[1], 1, 3)
    assert [Messages(one).nbytes(0, 1) for one in (every[0], unlike)] == [64 * 96 * 2, 32 * 96 * 2]


def test_timetable_of_a_stage_with_two_ranks_for_each_sequence():
    """One microbatch: stage 0 sends two halves at the same time through one NIC, and waits for both of the way back."""
    fleet = make.fleet(make.cluster(nodes=3, devices=1, nics=(make.nic(bandwidth=1e9),)))
    plan = make.plan(fleet, pp=2, layers=(1, 1), stage_cp=(1, 2), overlap_grad_reduce=False, overlap_param_gather=False)
    spans = {(span.rank, span.lane, span.name): span for span in simulate(plan).spans}
    hop = 64 * 96 * 2 / 1e9
    assert spans[1, "compute", "F0"].start - spans[0, "compute", "F0"].end == pytest.approx(hop, rel=1e-9)
    assert spans[0, "compute", "B0"].start - spans[1, "return", "send B0"].start == pytest.approx(hop, rel=1e-9)
    assert evaluate([plan]) == pytest.approx([simulate(plan).step_s], rel=1e-9)


@pytest.mark.parametrize(
    ("schedule", "zero_stage", "degrees", "tps"),
    [
        ("1f1b", 0, (1, 2), (1, 1)), ("zb-h1", 1, (2, 1, 4), (1, 1, 1)), ("gpipe", 3, (1, 4, 2), (1, 1, 1)),
        ("1f1b", 1, (1, 2), (4, 4)), ("zb-h1", 0, (2, 1), (4, 1)), ("gpipe", 1, (1, 2, 1), (4, 2, 1)),
    ],
)  # fmt: skip
def test_without_contention_the_evaluator_takes_the_time_of_the_engine(schedule, zero_stage, degrees, tps):
    """Messages take time by latency alone."""
    card, chip = make.nic(bandwidth=1e30, latency=1e-3), make.device(host_bandwidth=1e30)
    nodes = 2 * sum(cp * tp for cp, tp in zip(degrees, tps, strict=True))
    machines = make.fleet(make.cluster(nodes=nodes, devices=1, nics=(card,), spec=chip))
    plan = make.plan(
        machines, max(tps), len(degrees), dp=2, cp=min(degrees), stage_cp=degrees,
        stage_tp=tps if len(set(tps)) > 1 else (), sequence_parallel=max(tps) > 1, microbatches=5, layers=(2,) * len(degrees),
        shape={"hidden": 768}, schedule=schedule, zero_stage=zero_stage,
    )  # fmt: skip
    assert evaluate([plan]) == pytest.approx([simulate(plan).step_s], rel=1e-9)


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        (
            {"stage_cp": (2, 2), "cp": 2},
            PlanError,
            "stage_cp 2, 2: one degree for each of pp 2 pipeline ranks, of which some",
        ),
        ({"stage_cp": (1, 2), "cp": 2}, PlanError, "above cp 2 and none below"),
        ({"stage_cp": (2, 3), "cp": 2}, NotModelled, "stage_cp 2, 3: of two degrees, one must divide the other"),
        (
            {"stage_cp": (1, 2), "tp": 3},
            NotModelled,
            "the tokens of ranks with tp 3 and cp 1 and of ranks with tp 3 and cp 2 do not match; tp is 1 or even",
        ),
        (
            {"stage_cp": (1, 2), "tp": 6, "stage_tp": (6, 2)},
            NotModelled,
            "tp 6 and cp 1 and of ranks with tp 2 and cp 2 do not match",
        ),
        ({"stage_cp": (1, 2), "dp": 2, "zero_shard_size": 2, "num_microbatches": (2, 2)}, NotModelled, "with stage_cp is not"),
        ({"stage_cp": (1, 2), "attention": "unfused"}, PlanError, "needs attention flash"),
    ],
)
def test_wrong_degrees(values, error, message):
    with pytest.raises(error) as caught:
        ParallelConfig(**TWO | values)
    assert message in str(caught.value)


def test_a_tied_embedding_needs_equal_cp_at_both_ends():
    machines = make.fleet(make.cluster(devices=4))
    with pytest.raises(NotModelled) as caught:
        make.plan(machines, pp=2, stage_cp=(1, 2), shape={"tied_embeddings": True})
    assert "cp 1 on the first stage and 2 on that of the head" in str(caught.value)
