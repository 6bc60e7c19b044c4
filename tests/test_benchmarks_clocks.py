"""The benchmark of plans under a slow and a fast clock."""

from __future__ import annotations

import os
import time

from benchmarks import clocks
from tests.more import deep


def test_a_machine_has_its_clock_and_its_cores_only_within_its_statement():
    real = time.monotonic
    with clocks.Machine(0.0, 3, 1.0).running():
        assert time.monotonic() == time.monotonic()
        assert (os.cpu_count(), os.getloadavg()) == (3, (0.0, 0.0, 0.0))
    assert time.monotonic is real


@deep
def test_a_row_for_each_topology_with_what_the_clock_decides():
    assert list(clocks.table([clocks.compared("peers/sailor-one-32")])) == [
        "| topology | step | lower bound | what the clock decides |",
        "| --- | --- | --- | --- |",
        "| peers/sailor-one-32 | 2.579 | 2.566 | - |",
        "1 topologies; the clock decides on: none.",
    ]
