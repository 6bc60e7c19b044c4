"""Sequences in parts: a list that grows by single items, and by whole sequences that are kept as they are."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from typing import TypeVar, cast, overload

Item = TypeVar("Item")


class Parts(Sequence[Item]):
    """A sequence of items in parts: `parts`, each of which was joined as a whole or ended by such a one, and a list, `tail`.

    `before` is the number of items in `parts`."""

    def __init__(self, items: Iterable[Item] = ()):
        self.parts: list[Sequence[Item]] = []
        self.before = 0
        self.tail: list[Item] = list(items)
        self._starts: list[int] = []

    def append(self, item: Item) -> None:
        """Add one item at the end."""
        self.tail.append(item)

    def join(self, part: Sequence[Item]) -> None:
        """Add the items of a sequence at the end, without a copy of them."""
        for one in (self.tail, part):
            if one:
                self.parts.append(one)
                self._starts.append(self.before)
                self.before += len(one)
        self.tail = []

    def __len__(self) -> int:
        return self.before + len(self.tail)

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> list[Item]: ...
    def __getitem__(self, index: int | slice) -> Item | list[Item]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        index = index + len(self) if index < 0 else index
        if index >= self.before:
            return self.tail[index - self.before]
        part = bisect.bisect_right(self._starts, index) - 1
        if part < 0:
            raise IndexError(f"no item {index - len(self)} from the end: {len(self)} items")
        return self.parts[part][index - self._starts[part]]


class Indices(Parts[int]):
    """Numbers in rising order."""

    def find(self, number: int) -> int:
        """Position of a number; -1 if it is not there."""
        start, part = self.before, cast(Sequence[int], self.tail)
        others = len(self.parts)
        while others and not (part and part[0] <= number):
            others -= 1
            start, part = self._starts[others], self.parts[others]
        position = bisect.bisect_left(part, number)
        return start + position if position < len(part) and part[position] == number else -1
