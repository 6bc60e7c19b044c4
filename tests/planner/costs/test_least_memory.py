"""The least memory of several shapes, which a family of shapes may need."""

from __future__ import annotations

from planner.costs.least_memory import LeastMemory
from tests.planner.costs.memories import block_memory, stage_memory


def test_zero_3_needs_more_than_zero_1_for_one_layer_and_less_for_many():
    """Zero 3 has whole weights of three layers and whole gradients of one beside its half of the state."""
    bytes_of = {stage: [stage_memory(1e12, dp=2, zero_stage=stage).bytes_at("middle", k) for k in (1, 6)] for stage in (1, 3)}
    assert bytes_of[1][0] < bytes_of[3][0] and bytes_of[1][1] > bytes_of[3][1]
    for nbytes, most in ((bytes_of[1][0], {1: 1, 3: 0}), (bytes_of[3][1], {1: 5, 3: 6})):
        every = {stage: stage_memory(nbytes, dp=2, zero_stage=stage) for stage in (1, 3)}
        assert {stage: one.most_layers("middle", ((1, 0),)) for stage, one in every.items()} == most
        least = LeastMemory(list(every.values()))
        assert least.most_layers("middle", ((1, 0),)) == least.most_kept("middle", ((1, 0),)) == max(most.values())
        assert least.held("middle", max(most.values())) == 1
        assert least.fewest("middle", ((1, 0),)) == ()


def test_a_family_recomputes_as_few_layers_as_any_of_its_members():
    nbytes = stage_memory(1e12, dp=2, zero_stage=1, recompute="none").bytes_at("middle", 3, 4)
    every = [block_memory(nbytes, dp=2, zero_stage=stage) for stage in (1, 3)]
    counts = [one.fewest("middle", ((4, 0),)) for one in every]
    assert counts[0] != counts[1]
    assert LeastMemory(every).fewest("middle", ((4, 0),)) == tuple(map(min, zip(*counts, strict=True)))
