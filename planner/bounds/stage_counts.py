"""Numbers of stages of each node class for which something holds that more stages of a class never spoil."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Counts = tuple[int, ...]
"""Stages of each class."""


def holding(most: Sequence[int], holds: Callable[[Counts], bool]) -> list[Counts]:
    """All numbers of stages, from 1 to `most` of each class, for which `holds` is true, in ascending order.

    `holds` must stay true if a class gets more stages, such as that stages have room for all layers. So a box of numbers is
    tested at its largest ones: if it is false there, it is false for all of the box; else the box is halved along its longest
    side. The upper half has the same largest numbers and needs no test of its own."""
    found: list[Counts] = []
    largest = tuple(most)
    boxes = [((1,) * len(largest), largest)] if all(largest) and holds(largest) else []
    while boxes:
        low, high = boxes.pop()
        side = max(range(len(high)), key=lambda i: high[i] - low[i])
        if low[side] == high[side]:
            found.append(high)
            continue
        middle = (low[side] + high[side]) // 2
        boxes.append((_with(low, side, middle + 1), high))
        if holds(half := _with(high, side, middle)):
            boxes.append((low, half))
    return sorted(found)


def _with(counts: Counts, side: int, count: int) -> Counts:
    return (*counts[:side], count, *counts[side + 1 :])
