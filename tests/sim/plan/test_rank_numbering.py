"""Numbering of ranks: coordinates, ranks and peers, with equal degrees of all stages and with unlike ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.errors import NotModelled, PlanError
from sim.kernels.memory import peak_memory
from sim.plan.groups import group_ranks
from sim.plan.parallel_config import ParallelConfig
from tests import builders as make
from tests.builders import any_plan


def unlike(*degrees: int, dp: int = 2, **options: object) -> ParallelConfig:
    """A configuration with these tensor-parallel degrees of its stages."""
    tp, pp = max(degrees), len(degrees)
    return ParallelConfig(tp=tp, pp=pp, dp=dp, num_microbatches=(2,) * dp, stage_tp=degrees, **options)


def test_stages_of_unlike_degrees_are_numbered_one_after_the_other():
    config = unlike(4, 1, 2)
    assert config.world_size == 14
    assert [config.first_rank(pp_rank) for pp_rank in range(4)] == [0, 8, 10, 14]
    assert [config.coordinates(rank) for rank in range(14)] == [
        (0, 0, 0), (1, 0, 0), (2, 0, 0), (3, 0, 0), (0, 1, 0), (1, 1, 0), (2, 1, 0), (3, 1, 0),
        (0, 0, 1), (0, 1, 1),
        (0, 0, 2), (1, 0, 2), (0, 1, 2), (1, 1, 2),
    ]  # fmt: skip


def test_peers_hold_parts_of_the_same_activation():
    config = unlike(4, 1, 2)
    assert config.peers(5, 1) == (9,)
    assert config.peers(9, 0) == (4, 5, 6, 7)
    assert config.peers(9, 2) == (12, 13)
    assert [config.peers(rank, 2) for rank in (0, 1, 2, 3)] == [(10,), (10,), (11,), (11,)]


def test_groups_of_unlike_degrees():
    found = list(group_ranks(unlike(2, 1)))
    assert [ranks for kind, ranks in found if kind == "tp"] == [(0, 1), (2, 3)]
    assert [ranks for kind, ranks in found if kind == "dp"] == [(0, 2), (1, 3), (4, 5)]
    assert [ranks for kind, ranks in found if kind == "pp"] == [(0, 4), (1, 4), (2, 5), (3, 5)]


def split(*degrees: int, **options: object) -> ParallelConfig:
    """A configuration with these data-parallel degrees of its stages, and three microbatches more for each next replica."""
    dp, size = min(degrees), max(degrees) // min(degrees)
    numbers = tuple(3 * replica + 1 for replica in range(dp))
    options = {"microbatch_size": size, "num_microbatches": numbers} | options
    return ParallelConfig(pp=len(degrees), dp=dp, stage_dp=degrees, **options)


def test_stages_of_unlike_dp_are_numbered_one_after_the_other():
    config = split(2, 4, tp=2)
    assert config.world_size == 12
    assert [config.first_rank(pp_rank) for pp_rank in range(3)] == [0, 4, 12]
    assert [config.coordinates(rank) for rank in range(12)] == [
        (0, 0, 0), (1, 0, 0), (0, 1, 0), (1, 1, 0),
        (0, 0, 1), (1, 0, 1), (0, 1, 1), (1, 1, 1), (0, 2, 1), (1, 2, 1), (0, 3, 1), (1, 3, 1),
    ]  # fmt: skip


def test_ranks_that_divide_the_samples_of_a_replica_have_its_microbatches():
    config = split(2, 4)
    assert [config.microbatches_of(index, 0) for index in range(2)] == [1, 4]
    assert [config.microbatches_of(index, 1) for index in range(4)] == [1, 1, 4, 4]
    assert [config.split_of(pp_rank) for pp_rank in range(2)] == [1, 2]


def test_peers_hold_some_of_the_same_samples():
    config = split(1, 4, 2)
    assert config.peers(0, 1) == (1, 2, 3, 4)
    assert [config.peers(rank, 2) for rank in (1, 2, 3, 4)] == [(5,), (5,), (6,), (6,)]
    assert config.peers(6, 1) == (3, 4)


def test_peers_hold_slices_of_some_samples():
    """The first stage has the samples of a microbatch in two slices (ranks 0 and 1), the second in two halves (2 and 3), the
    third in two halves of two slices."""
    config = split(1, 2, 2, tp=2, stage_tp=(2, 1, 2))
    assert [config.peers(rank, 1) for rank in (0, 1)] == [(2, 3), (2, 3)]
    assert [config.peers(rank, 0) for rank in (2, 3)] == [(0, 1), (0, 1)]
    assert config.peers(3, 2) == (6, 7)
    assert [config.peers(rank, 2) for rank in (0, 1)] == [(4, 6), (5, 7)]
    assert config.peers(7, 0) == (1,)


def test_groups_of_unlike_dp():
    found = list(group_ranks(split(2, 4)))
    assert [ranks for kind, ranks in found if kind == "dp"] == [(0, 1), (2, 3, 4, 5)]
    assert [ranks for kind, ranks in found if kind == "pp"] == [(0, 2), (0, 3), (1, 4), (1, 5)]
    assert [ranks for kind, ranks in group_ranks(split(1, 2, tp=2, stage_tp=(2, 1))) if kind == "pp"] == [
        (0, 2), (1, 2), (0, 3), (1, 3),
    ]  # fmt: skip


def test_peers_hold_some_of_the_same_samples_and_tokens():
    """Ranks 0 and 1 have one half each of the sequences of two samples. With dp 2 and cp 2, ranks 2 and 3 have the first of
    them, 4 and 5 the other; with cp 4, ranks 2 and 3 have parts of what rank 0 has of the first, and so on."""
    same, more = split(1, 2, cp=2), split(1, 2, cp=2, stage_cp=(2, 4))
    assert [same.peers(rank, 1) for rank in (0, 1)] == [(2, 4), (3, 5)]
    assert [same.peers(rank, 0) for rank in (2, 3, 4, 5)] == [(0,), (1,), (0,), (1,)]
    assert [more.peers(rank, 1) for rank in (0, 1)] == [(2, 3, 6, 7), (4, 5, 8, 9)]
    assert [ranks for kind, ranks in group_ranks(same) if kind == "pp"] == [(0, 2), (1, 3), (0, 4), (1, 5)]
    assert [ranks for kind, ranks in group_ranks(same) if kind == "cp"] == [(0, 1), (2, 3), (4, 5)]


@given(any_plan())
def test_every_rank_has_its_coordinates_and_is_a_peer_of_its_peers(plan):
    config = plan.config
    for rank in range(config.world_size):
        assert config.rank(*config.coordinates(rank)) == rank
        _, index, own = config.coordinates(rank)
        for pp_rank in range(config.pp):
            peers = config.peers(rank, pp_rank)
            assert all(rank in config.peers(peer, own) for peer in peers)
            ends = [config.coordinates(peer)[1:] for peer in peers]
            replica = index // config.split_of(own)
            assert all((of // config.split_of(pp_rank), stage) == (replica, pp_rank) for of, stage in ends)


@pytest.mark.parametrize(("degrees", "text"), [((8, 2, 2, 2), "8x1+2x3"), ((1, 1, 4), "1x2+4x1"), ((2, 1, 2), "2x1+1x1+2x1")])
def test_text(degrees, text):
    assert unlike(*degrees).tp_text == split(*degrees).dp_text == text
    assert (unlike(*degrees).dp_text, split(*degrees).tp_text) == ("2", "1")


def test_a_stage_by_itself_has_its_own_degree():
    config = unlike(4, 1, sequence_parallel=True)
    wide, narrow = config.of_pp_rank(0), config.of_pp_rank(1)
    assert (wide.tp, wide.stage_tp, wide.sequence_parallel) == (4, (), True)
    assert (narrow.tp, narrow.sequence_parallel) == (1, False)


def test_a_stage_by_itself_has_its_own_replicas_and_samples():
    config = split(2, 4, zero_stage=0)
    assert config.of_pp_rank(0) == ParallelConfig(pp=2, dp=2, num_microbatches=(1, 4), microbatch_size=2, zero_stage=0)
    assert config.of_pp_rank(1) == ParallelConfig(pp=2, dp=4, num_microbatches=(1, 1, 4, 4), zero_stage=0)


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        (
            {"tp": 4, "pp": 2, "stage_tp": (4, 4)},
            PlanError,
            "stage_tp 4, 4: one degree for each of pp 2 pipeline ranks, of which some are below tp 4 and none above; leave it "
            "out where all are equal",
        ),
        ({"tp": 4, "pp": 3, "stage_tp": (4, 2)}, PlanError, "stage_tp 4, 2: one degree for each of pp 3 pipeline ranks"),
        ({"tp": 2, "pp": 2, "stage_tp": (4, 2)}, PlanError, "none above"),
        ({"tp": 6, "pp": 3, "stage_tp": (6, 2, 3)}, NotModelled, "stage_tp 6, 2, 3: of two degrees, one must divide the other"),
        (
            {"pp": 2, "stage_dp": (2, 2), "microbatch_size": 2},
            PlanError,
            "stage_dp 2, 2: one degree for each of pp 2 pipeline ranks, of which some are above dp 1 and none below; leave it "
            "out where all are equal",
        ),
        ({"pp": 3, "stage_dp": (1, 2), "microbatch_size": 2}, PlanError, "stage_dp 1, 2: one degree for each of pp 3"),
        ({"pp": 2, "dp": 2, "stage_dp": (1, 2), "num_microbatches": (1, 1)}, PlanError, "none below"),
        (
            {"pp": 3, "stage_dp": (1, 2, 3), "microbatch_size": 6},
            NotModelled,
            "stage_dp 1, 2, 3: of two degrees, one must divide the other",
        ),
        (
            {"pp": 2, "dp": 2, "stage_dp": (2, 8), "num_microbatches": (1, 1), "microbatch_size": 6},
            PlanError,
            "stage_dp 2, 8: up to 4 ranks divide a microbatch of one of dp 2 replicas, but microbatch_size is 6; a multiple of "
            "4",
        ),
    ],
)
def test_wrong_degrees(values, error, message):
    with pytest.raises(error) as caught:
        ParallelConfig(**values)
    assert message in str(caught.value)


def test_a_tied_embedding_with_sharded_gradients_needs_equal_ends():
    machines = make.fleet(make.cluster(devices=8))
    shape = {"tied_embeddings": True}
    message = (
        "config.stage_tp: tp 2 on the first stage and 1 on that of the head, which share a tied embedding: their shards of its "
        "gradient differ; zero_stage 0, or equal tp"
    )
    with pytest.raises(NotModelled) as caught:
        make.plan(machines, 2, 2, 2, shape=shape, stage_tp=(2, 1))
    assert str(caught.value) == message
    assert make.plan(machines, 2, 2, 2, shape=shape, stage_tp=(2, 1), zero_stage=0).config.world_size == 6
    assert make.plan(machines, 2, 3, 2, shape=shape, stage_tp=(1, 2, 1)).config.world_size == 8


@pytest.mark.parametrize("zero_stage", [0, 1])
def test_a_tied_embedding_needs_equal_dp_of_its_ends(zero_stage):
    machines = make.fleet(make.cluster(devices=8))
    options = {"shape": {"tied_embeddings": True}, "microbatch_size": 2, "zero_stage": zero_stage}
    with pytest.raises(NotModelled) as caught:
        make.plan(machines, 1, 2, 1, stage_dp=(1, 2), **options)
    assert str(caught.value) == (
        "config.stage_dp: dp 1 on the first stage and 2 on that of the head, which share a tied embedding: its gradient is not "
        "summed between unlike numbers of ranks; equal dp of both, or an untied head"
    )
    assert make.plan(machines, 1, 3, 1, stage_dp=(2, 1, 2), **options).config.world_size == 5
    with pytest.raises(NotModelled, match="tp 1 on the first stage and 2 on that of the head"):
        make.plan(machines, 2, 3, 1, stage_dp=(2, 1, 2), stage_tp=(1, 2, 2), **options | {"zero_stage": 1})


@given(st.data())
def test_a_stage_costs_as_much_memory_as_in_a_plan_where_all_have_its_degree(data):
    degrees = data.draw(st.sampled_from([(1, 2), (4, 1, 2), (2, 2, 1)]))
    options = {"zero_stage": data.draw(st.integers(0, 3)), "sequence_parallel": data.draw(st.booleans())}
    machines = make.fleet(make.cluster(nodes=6, devices=4))
    pp = len(degrees)
    own = peak_memory(make.plan(machines, max(degrees), pp, 2, stage_tp=degrees, **options))
    for pp_rank, tp in enumerate(degrees):
        alike = options | {"sequence_parallel": options["sequence_parallel"] and tp > 1}
        assert own[pp_rank] == peak_memory(make.plan(machines, tp, pp, 2, **alike))[pp_rank]


@given(st.data())
def test_a_stage_of_unlike_dp_costs_as_much_memory_as_in_a_plan_where_all_have_its_ranks_and_samples(data):
    splits, dp = data.draw(st.sampled_from([(1, 2), (4, 1, 2), (2, 2, 1)])), data.draw(st.integers(1, 2))
    options = {"zero_stage": data.draw(st.integers(0, 3)), "microbatches": data.draw(st.integers(1, 4))}
    machines = make.fleet(make.cluster(nodes=6, devices=4))
    unlike_dp = tuple(dp * split for split in splits)
    own = peak_memory(make.plan(machines, 1, len(splits), dp, stage_dp=unlike_dp, microbatch_size=4, **options))
    for pp_rank, split in enumerate(splits):
        alike = make.plan(machines, 1, len(splits), dp * split, microbatch_size=4 // split, **options)
        assert own[pp_rank] == peak_memory(alike)[pp_rank]
