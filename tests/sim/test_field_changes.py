"""Copies with changed fields equal those of `dataclasses.replace`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.errors import PlanError
from sim.field_changes import changed
from sim.plan.parallel_config import ParallelConfig


def test_a_copy_equals_that_of_the_standard_library() -> None:
    config = ParallelConfig(tp=2, dp=2, num_microbatches=(3, 3), stage_recompute=())
    assert changed(config, recompute="full", recompute_layers=(1,)) == replace(config, recompute="full", recompute_layers=(1,))


def test_new_values_are_checked() -> None:
    with pytest.raises(PlanError, match="zero_stage 4"):
        changed(ParallelConfig(), zero_stage=4)
    with pytest.raises(KeyError):
        changed(ParallelConfig(), zero=1)
