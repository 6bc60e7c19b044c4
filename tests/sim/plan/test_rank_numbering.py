"""Numbering of ranks: coordinates, ranks and peers, with one tensor-parallel degree and with unlike ones."""

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


@given(any_plan())
def test_every_rank_has_its_coordinates_and_is_a_peer_of_its_peers(plan):
    config = plan.config
    for rank in range(config.world_size):
        assert config.rank(*config.coordinates(rank)) == rank
        for pp_rank in range(config.pp):
            peers = config.peers(rank, pp_rank)
            assert all(rank in config.peers(peer, config.coordinates(rank)[2]) for peer in peers)
            assert all(config.coordinates(peer)[1:] == (config.coordinates(rank)[1], pp_rank) for peer in peers)


@pytest.mark.parametrize(("degrees", "text"), [((8, 2, 2, 2), "8x1+2x3"), ((1, 1, 4), "1x2+4x1"), ((2, 1, 2), "2x1+1x1+2x1")])
def test_text(degrees, text):
    assert unlike(*degrees).tp_text == text


def test_a_stage_by_itself_has_its_own_degree():
    config = unlike(4, 1, sequence_parallel=True)
    assert (config.with_tp(4).tp, config.with_tp(4).stage_tp, config.with_tp(4).sequence_parallel) == (4, (), True)
    assert (config.with_tp(1).tp, config.with_tp(1).sequence_parallel) == (1, False)


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
        ({"tp": 2, "pp": 2, "stage_tp": (2, 1), "cp": 2}, NotModelled, "unlike tp is modelled without cp, ep and etp"),
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
