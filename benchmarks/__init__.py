"""How fast holmes-sim is: `python -m benchmarks` prints a table. Speeds are compared in one run, on one machine."""

from __future__ import annotations

import time
from collections.abc import Callable


def least(work: Callable[[], object], repeats: int = 5) -> float:
    """The least CPU seconds of several runs: others on the machine count least there."""
    found = []
    for _ in range(repeats):
        begun = time.process_time()
        work()
        found.append(time.process_time() - begun)
    return min(found)
