"""median: the median of each value; with an even number of islands the mean of the two in the middle."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from sim.aggregation.median import NAME

__all__ = ["NAME", "aggregate"]


def aggregate(gathered: list[Tensor], total: Callable[[Tensor], Tensor]) -> list[Tensor]:
    """The median over islands of each value."""
    found = []
    for values in gathered:
        ordered, islands = values.sort(0).values, values.shape[0]
        found.append((ordered[(islands - 1) // 2] + ordered[islands // 2]) / 2)
    return found
