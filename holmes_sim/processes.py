"""Work on all cores of this machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Item = TypeVar("Item")
PARALLEL_FROM = 20
"""Minimum number of items for which several processes are started. Guess: fewer items do not repay their start."""


def each(
    work: Callable[[Item], float],
    items: list[Item],
    progress: Callable[[str], None] = lambda text: None,
    least: int | None = None,
) -> list[float]:
    """Apply `work` to every item and return the numbers in order; uses several processes for `least` items (`PARALLEL_FROM`) or
    more.

    joblib's processes do not run the main module again, so a script needs no guard around a call of this package."""
    if len(items) < (PARALLEL_FROM if least is None else least):
        return [work(item) for item in items]
    import joblib  # its import takes longer than most commands need it

    done: list[float] = []
    with joblib.parallel_config("loky", inner_max_num_threads=1):
        pool = joblib.Parallel(n_jobs=-1, return_as="generator", batch_size=4 if least is None else 1)
        for number in pool(joblib.delayed(work)(item) for item in items):
            done.append(number)
            progress(f"{len(done)} of {len(items)} cases")
    return done
