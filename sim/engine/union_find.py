"""Union-find: disjoint sets of numbers that grow together.

Written out here, because importing networkx takes a fifth of a second of each command."""

from __future__ import annotations

from collections.abc import Iterable


class UnionFind:
    """Disjoint sets of integers; a number that is not known is a set of its own."""

    def __init__(self, numbers: Iterable[int] = ()):
        self._above = {number: number for number in numbers}

    def __getitem__(self, number: int) -> int:
        """The number that stands for the set of a number."""
        above = self._above
        parent = above.setdefault(number, number)
        while parent != number:
            above[number] = number = above[parent]  # halves the path
            parent = above[number]
        return number

    def union(self, *numbers: int) -> None:
        """Make the sets of some numbers one set."""
        roots = [self[number] for number in numbers]
        for root in roots[1:]:
            self._above[self[root]] = self[roots[0]]
