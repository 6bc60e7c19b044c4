"""What the search leaves out of its space that a plan may have for each stage."""

from __future__ import annotations

import pytest

from planner.request import Wishes
from planner.search.left_out import by_stage, recomputed
from tests.planner.builders import on_one_cluster
from tests.planner.search.mixtures import question


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (on_one_cluster(), ["stage_cp, stage_zero (one for all stages)"]),
        (on_one_cluster(wishes=Wishes(cp=1, zero_stage=1)), []),
        (on_one_cluster(wishes=Wishes(pp=1)), []),
        (on_one_cluster(layers=1), []),
        (question(Wishes(zero_stage=0, etp=1)), ["stage_cp, stage_ep (one for all stages)"]),
    ],
)
def test_what_is_one_for_all_stages(asked, told):
    assert list(by_stage(asked)) == told


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
