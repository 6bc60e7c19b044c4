"""multi-krum: the mean of the n - f - 2 islands with the best scores of Krum (Blanchard et al., NIPS 2017).

How many are averaged is up to the user in that paper; n - f - 2 is the default of the code of the Flag Aggregator
(hamidralmasi/FlagAggregator, aggregators/krum.py). It withstands as many wrong islands as Krum."""

from __future__ import annotations

from sim.aggregation.krum import kept, tolerated
from sim.aggregation.krum import passes as krum_passes

NAME = "multi-krum"
__all__ = ["NAME", "averaged", "efficiency", "kept", "passes", "tolerated"]


def averaged(islands: int) -> int:
    """Number of islands in the mean; at least one."""
    return max(islands - tolerated(islands) - 2, 1)


def passes(islands: int) -> float:
    """The distances of Krum; those averaged are read, and the mean is written."""
    return krum_passes(islands) - 2 + averaged(islands) + 1


def efficiency(islands: int) -> float:
    """The share of the islands that is averaged."""
    return averaged(islands) / islands
