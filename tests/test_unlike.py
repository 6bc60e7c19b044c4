"""The benchmark of unlike tp on drawn fleets of servers and gaming GPUs."""

from __future__ import annotations

from benchmarks import unlike


def test_a_row_for_each_fleet_whose_plan_has_unlike_tp():
    found = [unlike.compared(unlike.drawn(seed)) for seed in (10,)]
    assert list(unlike.table(iter(found))) == [
        "| fleet | one tp | unlike tp | saved |",
        "| --- | --- | --- | --- |",
        "| 1 x 8 h100-sxm5-80gb, 4 x 4 rtx-3080-ti; llama-2-7b, 64 x 4096 | 3.232 s (tp 1) | 3.126 s (tp 1x1+2x1) | 3.3% |",
        "1 of 1 plans have unlike tp; 0 are slower than with one tp.",
    ]
