"""Benchmarks of the speed and accuracy of holmes-sim; `python -m benchmarks` runs the quick ones and prints tables."""

from __future__ import annotations

import time
from collections.abc import Callable


def least(work: Callable[[], object], repeats: int = 5) -> float:
    """The least CPU seconds of several runs: the run with the least disturbance by other programs."""
    found = []
    for _ in range(repeats):
        begun = time.process_time()
        work()
        found.append(time.process_time() - begun)
    return min(found)
