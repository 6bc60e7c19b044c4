"""What is behind a rank of a pipeline whose layers differ, and what the rank adds to it: states and moves of a programme.

Ranks are filled from the last to the first. Without virtual stages, the number of layers behind a rank and its own number say
which layers of the model it has. With virtual stages a rank has a part of every range of layers, and may have any content
(layers of each kind) that so many ranges of the model have together; a state says how many layers of each kind are behind, so
that no kind is used more often than the model has it. Of models with too many states (`MOST_MOVES`) only the number of layers
is known, and all ranks may have the cheapest content."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from planner.costs.layer_kinds import Counts, Layers

Numbers: TypeAlias = NDArray[np.int64]
MOST_MOVES = 100_000
"""Most pairs of a state and a content for which the layers of each kind are counted (a guess). Larger: slower."""


def contents(layers: Layers, vpp: int) -> list[list[Counts]]:
    """By number of layers, every content that vpp ranges of the model may have together, whose sizes differ by at most one.

    The layers that predict further tokens are not among them. Contents with too many layers of a kind are left out."""
    number, every = layers.number, layers.counts(0, layers.number)
    windows = [sorted({layers.counts(first, first + size) for first in range(number - size + 1)}) for size in range(number + 1)]
    found: list[list[Counts]] = []
    for total in range(number + 1):
        sizes = [total * (chunk + 1) // vpp - total * chunk // vpp for chunk in range(vpp)]
        sums = {(0,) * len(every)}
        for size in sizes:
            sums = {tuple(a + b for a, b in zip(one, window, strict=True)) for one in sums for window in windows[size]}
            sums = {one for one in sums if all(a <= b for a, b in zip(one, every, strict=True))}
        found.append(sorted(sums))
    return found


@dataclass(frozen=True, slots=True)
class Moves:
    """The ranks that may come before the ranks behind.

    before, after, cell: of each move, the state behind, the state with the rank, and the index of the rank in `behind`, `own`
    and `content`: layers on the ranks behind, on the rank, and the index of its content among those of so many layers. Layers
    that predict further tokens count on the last rank."""

    before: Numbers
    after: Numbers
    cell: Numbers
    behind: Numbers
    own: Numbers
    content: Numbers


@functools.lru_cache(maxsize=16)
def states_of(layers: Layers, vpp: int) -> States:
    """The states of a model under vpp virtual stages."""
    return States(layers, vpp, contents(layers, vpp))


class States:
    """The states of a model under vpp virtual stages, from 0 (nothing is behind) to `last` (all layers are).

    kinds: `contents`; last_rank, other: the moves of the last rank and of each other one."""

    def __init__(self, layers: Layers, vpp: int, kinds: Sequence[Sequence[Counts]]):
        self._layers, self.kinds, self._every = layers, kinds, layers.counts(0, layers.number)
        moves = list(self._of_ranges() if vpp == 1 else self._of_contents())
        self.last = max(after for _, after, *_ in moves)
        self.last_rank = self._moves([move for move in moves if move[0] == 0], 0)
        self.other = self._moves(moves, layers.further)

    def _of_ranges(self) -> Iterator[tuple[int, int, int, int, int]]:
        """(state, state after, layers behind, own layers, content) of ranks without virtual stages."""
        number = self._layers.number
        for behind, after in itertools.combinations_with_replacement(range(number + 1), 2):
            content = self._layers.counts(number - after, number - behind)
            yield behind, after, behind, after - behind, self.kinds[after - behind].index(content)

    def _of_contents(self) -> Iterator[tuple[int, int, int, int, int]]:
        """The same of ranks with virtual stages."""
        every = [(own, x, counts) for own, some in enumerate(self.kinds) for x, counts in enumerate(some)]
        counted = math.prod(n + 1 for n in self._every) * len(every) <= MOST_MOVES
        if not counted:
            for behind, (own, x, _) in itertools.product(range(self._layers.number + 1), every):
                if behind + own <= self._layers.number:
                    yield behind, behind + own, behind, own, x
            return
        scale = [math.prod(n + 1 for n in self._every[:kind]) for kind in range(len(self._every))]
        for held in itertools.product(*(range(n + 1) for n in self._every)):
            state = sum(n * step for n, step in zip(held, scale, strict=True))
            for own, x, counts in every:
                if all(a + b <= most for a, b, most in zip(held, counts, self._every, strict=True)):
                    yield state, state + sum(n * step for n, step in zip(counts, scale, strict=True)), sum(held), own, x

    def _moves(self, moves: Sequence[tuple[int, int, int, int, int]], further: int) -> Moves:
        """Moves as arrays; further: layers for further tokens that are behind, else they are on the rank itself."""
        here = self._layers.further - further
        cells: dict[tuple[int, int, int], int] = {}
        index = [cells.setdefault(move[2:], len(cells)) for move in moves]
        behind, own, content = np.array(list(cells), dtype=np.int64).reshape(-1, 3).T
        before, after = (np.array([move[i] for move in moves], dtype=np.int64) for i in (0, 1))
        return Moves(before, after, np.array(index, dtype=np.int64), behind + further, own + here, content)
