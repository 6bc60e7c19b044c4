"""Division of the global batch among islands, in proportion to their speeds."""

from __future__ import annotations

LEAST_UNITS = 32
"""Least number of units into which a batch is divided, where a power of two divides it so (a guess). A larger one follows the
speeds more closely, and leaves each island with a batch of fewer divisors, so with fewer layouts."""


def unit(batch: int) -> int:
    """Sequences that the islands' batches are multiples of: the largest power of two that divides the batch into at least
    `LEAST_UNITS` units."""
    size = 1
    while batch % (2 * size) == 0 and batch // (2 * size) >= LEAST_UNITS:
        size *= 2
    return size


def divided(batch: int, speeds: tuple[float, ...], size: int | None = None) -> tuple[int, ...]:
    """A batch for each island, of at least one unit, such that the longest time is least: each unit goes to the island that
    would have it done first. `speeds` are in sequences per second; `size` is the unit in sequences, `unit(batch)` if not given.

    Greedy, and optimal for identical units on machines of unlike speed (list scheduling). Raises ValueError if there are fewer
    units than islands."""
    size = size or unit(batch)
    if batch // size < len(speeds):
        raise ValueError(f"a batch of {batch} cannot be divided among {len(speeds)} islands")
    units = [1] * len(speeds)
    for _ in range(batch // size - len(speeds)):
        soonest = min(range(len(speeds)), key=lambda index: ((units[index] + 1) / speeds[index], index))
        units[soonest] += 1
    return tuple(size * number for number in units)
