"""ZeRO stage and offload of each pipeline rank: checks, and the configuration of a rank by itself."""

from __future__ import annotations

import pytest

from sim.errors import NotDefined, NotModelled, PlanError
from sim.plan.parallel_config import ParallelConfig
from tests import builders as make

TWO = {"pp": 2, "dp": 2, "num_microbatches": (1, 1)}


def test_a_pipeline_rank_has_the_options_of_its_stage():
    config = ParallelConfig(**TWO, zero_stage=3, stage_zero=(3, 1), offload=("optimizer",), stage_offload=("none", "optimizer"))
    first, last = config.of_pp_rank(0), config.of_pp_rank(1)
    assert (first.zero_stage, first.offload, first.shards_parameters) == (3, (), True)
    assert (last.zero_stage, last.offload, last.shards_parameters) == (1, ("optimizer",), False)
    assert {(one.stage_zero, one.stage_offload) for one in (first, last)} == {((), ())}


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({"stage_zero": (1, 4), "zero_stage": 3}, PlanError, "stage_zero 4 is unknown; known: 0, 1, 2, 3"),
        (
            {"stage_zero": (1, 3), "zero_stage": 1},
            PlanError,
            "stage_zero 1, 3: zero_stage is the largest of them, 3, not 1",
        ),
        (
            {"stage_zero": (1, 1)},
            PlanError,
            "stage_zero 1, 1: one value for each of pp 2 pipeline ranks, not all equal; leave it out where they are",
        ),
        ({"stage_zero": (1, 3, 1), "zero_stage": 3}, PlanError, "one value for each of pp 2 pipeline ranks"),
        (
            {"stage_zero": (0, 1), "tied_shards": True},
            NotModelled,
            "stage_zero 0, 1 with tied_shards is not modelled; 1 to 3 on all stages",
        ),
        (
            {"stage_zero": (3, 1), "zero_stage": 3, "zero_shard_size": 2},
            NotModelled,
            "stage_zero with zero_shard_size 2 is not modelled; one of both",
        ),
        ({"stage_zero": (2, 1), "zero_stage": 2, "num_microbatches": (1, 2)}, NotDefined, "2 reduces every microbatch"),
        (
            {"stage_offload": ("optimizer", "parameters"), "offload": ("optimizer", "parameters")},
            PlanError,
            "stage_offload 'parameters' is unknown; known: none, optimizer, activations, optimizer+activations",
        ),
        (
            {"stage_offload": ("optimizer", "none")},
            PlanError,
            "stage_offload optimizer, none: offload is all that some stage offloads, optimizer, not none",
        ),
    ],
)  # fmt: skip
def test_wrong_options(values, error, message):
    with pytest.raises(error) as caught:
        ParallelConfig(**TWO | values)
    assert message in str(caught.value)


def test_ends_that_share_a_tied_embedding_both_shard_its_gradient_or_none():
    machines = make.fleet(make.cluster(devices=8))
    options = {"shape": {"tied_embeddings": True}, "zero_stage": 1}
    with pytest.raises(NotModelled) as caught:
        make.plan(machines, 1, 2, 2, stage_zero=(0, 1), **options)
    assert str(caught.value) == (
        "config.stage_zero: 0 on one and more on the other of the first stage and that of the head, which share a tied "
        "embedding: only one would shard its gradient; 0 on both, or on neither"
    )
    assert make.plan(machines, 1, 3, 2, stage_zero=(1, 0, 1), **options).config.zero_of(1) == 0
