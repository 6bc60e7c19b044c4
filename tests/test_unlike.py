"""The benchmark of unlike tp on drawn fleets of servers and gaming GPUs."""

from __future__ import annotations

import math
from dataclasses import replace

from benchmarks import unlike
from tests.more import deep


@deep
def test_a_row_for_each_fleet_whose_plan_has_unlike_tp():
    """Without a time limit, so that a busy machine finds it, too. Of one tp, 1 is the fastest here; the others are left out."""
    request = replace(unlike.drawn(10), time_limit=math.inf)
    found = [unlike.compared(request, unlike.ONE_TP[:1])]
    assert list(unlike.table(iter(found))) == [
        "| fleet | one tp | unlike tp | saved |",
        "| --- | --- | --- | --- |",
        "| 1 x 8 h100-sxm5-80gb, 4 x 4 rtx-3080-ti; llama-2-7b, 64 x 4096 | 3.029 s (tp 1) | 2.943 s (tp 1x2+4x1) | 2.9% |",
        "1 of 1 plans have unlike tp; 0 are slower than with one tp.",
    ]
