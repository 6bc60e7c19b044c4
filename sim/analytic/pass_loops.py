"""Tasks of pipeline ranks, and loops of blocks of tasks that repeat.

A task is one compute action of one pipeline rank, with the message that it waits for and the message that it sends
(`sim.analytic.pass_order`)."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, overload

Key: TypeAlias = tuple[str, int, int]
"""A message: "F" or "B", the sending stage, the microbatch."""
KEPT = 8
"""Blocks of a loop that are kept once they are made: steady states are seldom found later. A guess; more take more memory."""


class Task(NamedTuple):
    """One compute action and its messages. `held` is sent only after `receives` has arrived; `lane` is the link of `sends`.

    `cut`: it may be split at buckets, because each of its parts waits for gathered weights (a stage's first forward) or starts
    a reduction of gradients (its last backward, or W).
    """

    pp_rank: int
    kind: str
    stage: int
    microbatch: int
    receives: Key | None
    held: Key | None
    sends: Key | None
    lane: int
    cut: bool

    def later(self, by: int) -> Task:
        """The same task `by` microbatches later."""
        pp_rank, kind, stage, microbatch, receives, held, sends, lane, cut = self
        receives = receives and (receives[0], receives[1], receives[2] + by)
        held = held and (held[0], held[1], held[2] + by)
        sends = sends and (sends[0], sends[1], sends[2] + by)
        return tuple.__new__(Task, (pp_rank, kind, stage, microbatch + by, receives, held, sends, lane, cut))


class Repeated(Sequence[tuple[Task, ...]]):
    """`count` blocks of tasks, each `later` microbatches after the previous one; a block is made when it is accessed, and kept
    if it is one of the first `KEPT`."""

    def __init__(self, first: tuple[Task, ...], count: int, later: int):
        self._first, self._count, self._later = first, count, later
        self._kept: list[tuple[Task, ...]] = []

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> tuple[Task, ...]: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[tuple[Task, ...], ...]: ...

    def __getitem__(self, index: int | slice) -> tuple[Task, ...] | tuple[tuple[Task, ...], ...]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(self._count)))
        if not -self._count <= index < self._count:
            raise IndexError(index)
        number = index % self._count
        if number < len(self._kept):
            return self._kept[number]
        block = tuple(task.later(number * self._later) for task in self._first)
        if number == len(self._kept) < KEPT:
            self._kept.append(block)
        return block


Numbers: TypeAlias = tuple[tuple[tuple[int, str, int, bool], int], ...]
"""Of some tasks: ((pipeline rank, kind, stage, whether it sends a message), number of them)."""


class Drain(NamedTuple):
    """The last message that a pipeline rank sends back in a step, to another rank, and what both compute behind it.

    behind: tasks of the rank after the one that sends it. received: tasks of the other rank, from the one that waits for it on.
    Both are tasks of the last block."""

    pp_rank: int
    stage: int
    to_rank: int
    behind: Numbers
    received: Numbers


@dataclass(frozen=True)
class Loop:
    """Blocks of sweeps, each equal to the previous one `later` microbatches later; a single block does not repeat."""

    blocks: Sequence[tuple[Task, ...]]
    later: int = 0

    @functools.cached_property
    def numbers(self) -> Numbers:
        """The tasks of a block, counted."""
        return _counted(self.blocks[0] if len(self.blocks) else ())

    @functools.cached_property
    def drains(self) -> tuple[Drain, ...]:
        """The last message back of each pipeline rank, by rank, where the last block both sends and receives it, and the rank
        that receives it sends its own last one after that."""
        block = self.blocks[-1] if len(self.blocks) else ()
        last = {task.pp_rank: at for at, task in enumerate(block) if task.kind == "B" and task.sends is not None}
        received: dict[Key | None, int] = {task.receives: at for at, task in enumerate(block) if task.receives is not None}
        found: list[Drain] = []
        for pp_rank, at in sorted(last.items()):
            arrives = received.get(block[at].sends, len(block))
            if arrives < len(block) and arrives <= last.get(to_rank := block[arrives].pp_rank, arrives) and to_rank != pp_rank:
                behind = _counted(task for task in block[at + 1 :] if task.pp_rank == pp_rank)
                following = _counted(task for task in block[arrives:] if task.pp_rank == to_rank)
                found.append(Drain(pp_rank, block[at].stage, to_rank, behind, following))
        return tuple(found)


def _counted(tasks: Iterable[Task]) -> Numbers:
    return tuple(Counter((one[0], one[1], one[2], one[6] is not None) for one in tasks).items())
