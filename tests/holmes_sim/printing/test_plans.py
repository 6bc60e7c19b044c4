"""Text and tables of plans whose stages have unlike degrees, and of layouts that lack memory."""

from __future__ import annotations

import math

import pytest

from holmes_sim.printing import layouts, plans
from planner.diagnosis.reasons import Verdict
from planner.space.shape import Shape
from sim.engine.engine import simulate
from sim.results.report import pipeline_ranks
from tests import builders as make

NAMES = "tp", "dp", "mb", "ZeRO", "on hosts", "recompute"


def test_microbatch_sizes_that_differ_have_a_column():
    plan = make.plan(
        make.fleet(make.cluster(devices=16)), 2, 3, microbatches=2, microbatch_size=4, stage_microbatch_size=(1, 4, 4)
    )
    assert layouts.degrees(plan) == "tp 2, pp 3, dp 1, mb 1x1+4x2"
    assert " | 2 microbatches of 4 (1x1+4x2 by stage) | 1f1b | " in plans.layout(plan)
    assert repr(plan) == "tiny: tiny, tp 2, pp 3, dp 1, mb 1x1+4x2, 1f1b"
    table = plans.stages(plan, pipeline_ranks(plan, simulate(plan)))
    found = {str(column.header): list(column.cells) for column in table.columns}
    assert {name: cells for name, cells in found.items() if name in NAMES} == {"mb": ["1", "4", "4"]}


@pytest.mark.parametrize(
    ("unlike", "text", "columns"),
    [
        ({}, "tp 2, pp 3, dp 1", {}),
        ({"stage_dp": (1, 2, 2)}, "tp 2, pp 3, dp 1x1+2x2", {"dp": ["1", "2", "2"], "mb": ["4", "2", "2"]}),
        ({"stage_dp": (4, 1, 1), "stage_tp": (1, 2, 2)}, "tp 1x1+2x2, pp 3, dp 4x1+1x2",
         {"tp": ["1", "2", "2"], "dp": ["4", "1", "1"], "mb": ["1", "4", "4"]}),
        ({"zero_stage": 3, "stage_zero": (3, 1, 1)}, "tp 2, pp 3, dp 1", {"ZeRO": ["3", "1", "1"]}),
        ({"offload": ("optimizer",), "stage_offload": ("none", "optimizer", "none")}, "tp 2, pp 3, dp 1",
         {"on hosts": ["none", "optimizer", "none"]}),
        ({"recompute": "full", "stage_recompute": ("full", "mlp", "none")}, "tp 2, pp 3, dp 1",
         {"recompute": ["full", "mlp", "none"]}),
    ],
)  # fmt: skip
def test_degrees_that_differ_have_a_column(unlike, text, columns):
    plan = make.plan(make.fleet(make.cluster(devices=16)), 2, 3, microbatch_size=4, **unlike)
    assert layouts.degrees(plan) == f"{text}, mb 4" + ", recompute by stage" * ("recompute" in columns)
    assert plans.layout(plan).startswith(text.replace(", ", " | "))
    assert repr(plan) == f"tiny: tiny, {text}, mb 4, 1f1b"
    table = plans.stages(plan, pipeline_ranks(plan, simulate(plan)))
    found = {str(column.header): list(column.cells) for column in table.columns}
    assert {name: cells for name, cells in found.items() if name in NAMES} == columns


@pytest.mark.parametrize(("tp", "is_told"), [(1, False), (2, True)])
def test_sequence_parallelism_is_told_where_a_tensor_group_has_several_ranks(tp, is_told):
    """Pipelines of one plan have one setting, whatever their tp."""
    plan = make.plan(make.fleet(make.cluster(devices=16)), tp, 3, sequence_parallel=True)
    assert ("sequence parallel" in plans.layout(plan)) == is_told


def test_groups_of_experts_and_of_a_tied_embedding_are_listed():
    """tp 2 and dp 4 on each of two stages: ep 4 with etp 1 leaves edp 2, by Megatron-Core's rank generator. Ranks of the first
    and the last stage share the embedding."""
    shape = {"tied_embeddings": True, "experts": 4, "experts_per_token": 1}
    of = make.plan(make.fleet(make.cluster(devices=16)), 2, 2, 4, ep=4, etp=1, sequence_parallel=True, shape=shape)
    counts = {(kind, ranks): many for (kind, ranks, *_), many in plans.group_counts(of).items()}
    listed = {("tp", "2"): 8, ("ep", "4"): 4, ("dp", "4"): 4, ("pp", "2"): 8}
    assert counts == listed | {("edp", "2"): 8, ("embedding", "2"): 8}


def test_layouts_that_lack_memory_are_one_row_for_all_microbatch_sizes():
    short = [Verdict(Shape(tp, 8, size, "none", "1f1b", 1, 1), math.inf, f"{tp} {size}") for tp in (1, 2) for size in (2, 1)]
    fits = Verdict(Shape(4, 2, 1, "none", "1f1b", 1, 1), 2.0, "stage 0")
    found = plans.verdicts(make.plan(make.fleet(make.cluster(devices=16)), 2, 1), [fits, *short[:3]])
    table = found.renderables[1]
    assert [list(column.cells) for column in table.columns] == [
        ["tp 4, dp 2, mb 1, 1f1b", "tp 1, dp 8, mb 1 and more", "tp 2, dp 8, mb 2"],
        ["2 s", "-", "-"],
        ["stage 0", "1 1", "2 2"],
    ]
    assert str(found.renderables[2]).startswith("3 layouts lack memory. ")
