"""The benchmark of unlike tp on drawn fleets of servers and gaming GPUs."""

from __future__ import annotations

from benchmarks import unlike


def test_a_row_for_each_fleet_whose_plan_has_unlike_tp():
    found = [unlike.compared(unlike.drawn(seed)) for seed in (0, 2)]
    assert list(unlike.table(iter(found))) == [
        "| fleet | one tp | unlike tp | saved |",
        "| --- | --- | --- | --- |",
        "| 1 x 8 a100-sxm4-80gb, 3 x 8 rtx-3080-ti; llama-2-13b, 64 x 4096 | 11.9 s (tp 4) | 11.42 s (tp 4x3+2x2) | 4.0% |",
        "1 of 2 plans have unlike tp; 0 are slower than with one tp.",
    ]
