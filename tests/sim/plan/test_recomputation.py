"""Kinds of recomputation of pipeline ranks: the configuration of a rank by itself, and checks."""

from __future__ import annotations

import pytest

from sim.errors import PlanError
from sim.plan.parallel_config import ParallelConfig
from tests import builders as make

TWO = {"pp": 2, "num_microbatches": (4,)}


def test_a_pipeline_rank_recomputes_as_its_stage_says():
    config = ParallelConfig(**TWO, recompute="full", recompute_layers=(3,), stage_recompute=("layernorm+mlp", "full"))
    first, last = config.of_pp_rank(0), config.of_pp_rank(1)
    assert (first.recompute, first.recompute_modules, first.recompute_layers) == ("selective", ("layernorm", "mlp"), ())
    assert (last.recompute, last.recompute_modules, last.recompute_layers) == ("full", (), (3,))
    assert (first.stage_recompute, last.stage_recompute, config.recomputation) == ((), (), "by stage")
    assert config.recomputing("none") == ParallelConfig(**TWO)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"stage_recompute": ("none", "mpl"), "recompute": "selective"},
            "stage_recompute 'mpl' is unknown; known: none, selective, full, or modules joined by +: core_attn, layernorm, "
            "mlp, moe_act, moe, mla_up_proj",
        ),
        ({"stage_recompute": ("none", "full+mlp"), "recompute": "selective"}, "stage_recompute 'full' is unknown"),
        (
            {"stage_recompute": ("none", "full"), "recompute": "selective"},
            "stage_recompute none, full: recompute is the most that some stage recomputes, full, not selective",
        ),
        (
            {"stage_recompute": ("full",) * 2, "recompute": "full"},
            "stage_recompute full, full: one value for each of pp 2 pipeline ranks, not all equal; leave it out where they are",
        ),
        ({"stage_recompute": ("none", "none", "full"), "recompute": "full"}, "one value for each of pp 2 pipeline ranks"),
        (
            {"stage_recompute": ("none", "mlp"), "recompute": "selective", "recompute_modules": ("mlp",)},
            "recompute_modules with stage_recompute, which has those of each stage, as layernorm+mlp",
        ),
        (
            {"stage_recompute": ("full", "mlp"), "recompute": "full", "recompute_layers": (2, 1)},
            "recompute_layers[1]: 1, but stage_recompute of its pipeline rank is mlp, not full; 0",
        ),
    ],
)
def test_wrong_kinds(values, message):
    with pytest.raises(PlanError) as caught:
        ParallelConfig(**TWO | values)
    assert message in str(caught.value)


def test_modules_of_a_stage_must_be_those_of_the_model():
    with pytest.raises(PlanError) as caught:
        make.plan(make.fleet(make.cluster(devices=2)), 1, 2, recompute="selective", stage_recompute=("none", "moe"))
    assert str(caught.value) == "config.stage_recompute: moe needs experts, which tiny has not"
