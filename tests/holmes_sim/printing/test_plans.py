"""Text and tables of plans whose stages have unlike degrees."""

from __future__ import annotations

import pytest

from holmes_sim.printing import layouts, plans
from sim.engine.engine import simulate
from sim.results.report import pipeline_ranks
from tests import builders as make


@pytest.mark.parametrize(
    ("unlike", "text", "columns"),
    [
        ({}, "tp 2, pp 3, dp 1", {}),
        ({"stage_dp": (1, 2, 2)}, "tp 2, pp 3, dp 1x1+2x2", {"dp": ["1", "2", "2"]}),
        ({"stage_dp": (4, 1, 1), "stage_tp": (1, 2, 2)}, "tp 1x1+2x2, pp 3, dp 4x1+1x2",
         {"tp": ["1", "2", "2"], "dp": ["4", "1", "1"]}),
    ],
)  # fmt: skip
def test_degrees_that_differ_have_a_column(unlike, text, columns):
    plan = make.plan(make.fleet(make.cluster(devices=16)), 2, 3, microbatch_size=4, **unlike)
    assert layouts.degrees(plan) == f"{text}, mb 4"
    assert plans.layout(plan).startswith(text.replace(", ", " | "))
    assert repr(plan) == f"tiny: tiny, {text}, mb 4, 1f1b"
    table = plans.stages(plan, pipeline_ranks(plan, simulate(plan)))
    found = {str(column.header): list(column.cells) for column in table.columns}
    assert {name: cells for name, cells in found.items() if name in ("tp", "dp")} == columns
