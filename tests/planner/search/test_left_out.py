"""What the search leaves out of its space that a plan may have for each stage."""

from __future__ import annotations

import pytest

from planner.request import Wishes
from planner.search.left_out import by_stage, recomputed
from tests.planner.builders import on_one_cluster, on_two_clusters
from tests.planner.search.mixtures import question
from tests.planner.unlike_degrees import question as unlike


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (on_one_cluster(), ["stage_cp, stage_zero, stage_microbatch_size (one for all stages)"]),
        (on_one_cluster(wishes=Wishes(cp=1, zero_stage=1, microbatch_size=1)), []),
        (on_one_cluster(wishes=Wishes(pp=1)), []),
        (on_one_cluster(layers=1), []),
        (question(Wishes(zero_stage=0, etp=1)), ["stage_cp, stage_ep, stage_microbatch_size (one for all stages)"]),
    ],
)
def test_what_is_one_for_all_stages(asked, told):
    assert list(by_stage(asked, False)) == told


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (on_two_clusters(), ["stage_cp, stage_zero, stage_microbatch_size (one for all stages)"]),
        (
            unlike(experts=4),
            ["stage_ep, stage_etp (tried, without a proof)", "stage_cp, stage_microbatch_size (one for all stages)"],
        ),
        (
            unlike(Wishes(), seq_len=8192),
            ["stage_cp (tried, without a proof)", "stage_zero, stage_microbatch_size (one for all stages)"],
        ),
        (unlike(Wishes(dp=2), seq_len=8192), ["stage_cp, stage_zero, stage_microbatch_size (one for all stages)"]),
    ],
)
def test_degrees_of_which_unlike_ones_are_tried(asked, told):
    assert list(by_stage(asked, True)) == told


@pytest.mark.parametrize(
    ("blocks", "tried", "told"),
    [
        (True, False, "recomputation of chosen modules (recompute_modules, stage_recompute)"),
        (False, False, "recomputation of chosen layers or modules (recompute_layers, recompute_modules, stage_recompute)"),
        (True, True, "recomputation of chosen modules (recompute_modules, stage_recompute) (tried, without a proof)"),
    ],
)
def test_recomputation_of_modules_is_tried_or_left_out(blocks, tried, told):
    assert list(recomputed(question(), blocks, tried)) == [told]
    assert list(recomputed(question(Wishes(recompute="none")), blocks, tried)) == []
