"""median: the median of each parameter over the islands (coordinate-wise median; Yin et al., arXiv 1803.01498)."""

from __future__ import annotations

import math

NAME = "median"


def tolerated(islands: int) -> int:
    """Fewer than half."""
    return (islands - 1) // 2


def passes(islands: int) -> float:
    """Sort n values of each parameter: log2 n passes that read and write n values each, and one value written."""
    return 2 * islands * max(1.0, math.log2(islands)) + 1
