"""median: the median of each parameter over the islands (coordinate-wise median; Yin et al., arXiv 1803.01498)."""

from __future__ import annotations

import math

NAME = "median"
EFFICIENCY = {3: 0.743, 4: 0.838, 5: 0.697, 6: 0.776, 7: 0.679, 8: 0.743, 9: 0.669, 10: 0.723}
"""Number of normal values -> variance of their mean over that of their median (order statistics, as tabled by Dixon and Massey,
Introduction to Statistical Analysis; a test computes them). With an even number the median is the mean of the two in the
middle, so that two values lose nothing."""
LIMIT = 2 / math.pi
"""The same for very many values; it is taken from 11 on, where it is at most 0.07 too low."""


def tolerated(islands: int) -> int:
    """Fewer than half."""
    return (islands - 1) // 2


def passes(islands: int) -> float:
    """Sort n values of each parameter: log2 n passes that read and write n values each, and one value written."""
    return 2 * islands * max(1.0, math.log2(islands)) + 1


def kept(islands: int) -> float:
    """Those of all islands."""
    return float(islands)


def efficiency(islands: int) -> float:
    """`EFFICIENCY`."""
    return 1.0 if islands < 3 else EFFICIENCY.get(islands, LIMIT)
