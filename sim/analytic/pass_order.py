"""Order in which the forward and backward passes of a pipeline are evaluated, with the repetition of its steady state.

A task is one compute action of one pipeline rank (a forward F, a backward B, or its weight gradients W), with the message that
it waits for and the message that it sends. Tasks are listed in sweeps: in each sweep every pipeline rank in turn executes at
most one task of each kind, if its message has been sent. So the order is topological: every task follows all tasks that it
depends on. In the steady state of a schedule each sweep equals the previous one, one microbatch later
(with virtual stages, pp x vpp sweeps equal the previous ones, pp microbatches later). Loops name these repeated runs of sweeps.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, overload

from sim.kernels import lowering
from sim.plan import schedules

Key: TypeAlias = tuple[str, int, int]
"""A message: "F" or "B", the sending stage, the microbatch."""

LISTED = 4
"""Microbatches that are listed individually, in units of pp + `BLOCK`. 4 covers the fill, three blocks of the steady state and
the drain; more lists more without changing the result."""
BLOCK = 12
"""Sweeps in one block of a loop. Where a round trip of several microbatches is the bottleneck, clocks grow equally only from
one round trip to the next; 12 is a multiple of 2, 3, 4 and 6. A larger block evaluates more tasks before it can extrapolate."""


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
        receives, held, sends = self.receives, self.held, self.sends
        return Task(
            self.pp_rank, self.kind, self.stage, self.microbatch + by,
            receives and (receives[0], receives[1], receives[2] + by), held and (held[0], held[1], held[2] + by),
            sends and (sends[0], sends[1], sends[2] + by), self.lane, self.cut,
        )  # fmt: skip


Sweep: TypeAlias = tuple[Task, ...]


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


@dataclass(frozen=True, slots=True)
class Loop:
    """Blocks of sweeps, each equal to the previous one `later` microbatches later; a single block does not repeat."""

    blocks: Sequence[tuple[Task, ...]]
    later: int = 0


@functools.lru_cache(maxsize=256)
def ordered_tasks(schedule: str, pp: int, microbatches: int, vpp: int) -> tuple[Loop, ...]:
    """All tasks of a step in an order in which each follows all tasks that it depends on.

    Of many microbatches only some are listed; if these give one loop, the others extend it and shift the rest."""
    if vpp == 1 and schedules.get(schedule).CHUNKED:  # its blocks and its rounds of pp microbatches seldom agree
        return ordered_tasks_in_full(schedule, pp, microbatches, vpp)
    period = BLOCK if vpp == 1 else pp
    more = max(microbatches - LISTED * (pp + BLOCK), 0) // period
    loops = ordered_tasks_in_full(schedule, pp, microbatches - more * period, vpp)
    if not more:
        return loops
    if len(loops) != 3 or loops[1].later != period:
        return ordered_tasks_in_full(schedule, pp, microbatches, vpp)
    head, loop, rest = loops
    longer = Loop(Repeated(loop.blocks[0], len(loop.blocks) + more, period), period)
    return head, longer, Loop((tuple(task.later(more * period) for task in rest.blocks[0]),))


def ordered_tasks_in_full(schedule: str, pp: int, microbatches: int, vpp: int) -> tuple[Loop, ...]:
    """As `ordered_tasks`, with every microbatch listed."""
    sweeps = _sweeps([_tasks(schedule, pp_rank, pp, microbatches, vpp) for pp_rank in range(pp)])
    period, later, blocks = (1, 1, BLOCK) if vpp == 1 else (pp * vpp, pp, 1)
    alike = [_equal(a, b, later) for a, b in zip(sweeps, sweeps[period:], strict=False)]
    length, loops, at = period * blocks, [], 0
    alone: list[Task] = []
    while at < len(sweeps):
        run = next((k for k, same in enumerate(alike[at:]) if not same), max(len(alike) - at, 0))
        count = (run + period) // length if run else 0
        if count < 3:
            alone += [task for one in sweeps[at : at + run + 1] for task in one]
            at += run + 1
            continue
        starts = range(at, at + count * length, length)
        loops.append(Loop((tuple(alone),)))
        loops.append(Loop(tuple(tuple(t for one in sweeps[k : k + length] for t in one) for k in starts), later * blocks))
        alone, at = [], at + count * length
    return (*loops, Loop((tuple(alone),)))


def _equal(one: Sweep, other: Sweep, later: int) -> bool:
    return len(one) == len(other) and all(map(_is_later, one, other, itertools.repeat(later)))


def _is_later(one: Task, other: Task, by: int) -> bool:
    """Whether a task is another one `by` microbatches later."""
    pp_rank, kind, stage, microbatch, *keys, lane, cut = one
    same = other[3] == microbatch + by and other[:3] == (pp_rank, kind, stage) and other[7:] == (lane, cut)
    return same and all(
        a is b or (a is not None and b is not None and a[2] + by == b[2] and a[:2] == b[:2])
        for a, b in zip(keys, other[4:7], strict=True)
    )


def _tasks(schedule: str, pp_rank: int, pp: int, microbatches: int, vpp: int) -> list[Task]:
    """Tasks of a pipeline rank in the order of its program (`sim.kernels.lowering.moves`)."""
    closing = "W" if schedules.get(schedule).SPLITS_BACKWARD else "B"
    moves = tuple(lowering.moves(schedule, pp_rank, pp, microbatches, vpp))
    last = {move.stage: index for index, move in enumerate(moves) if move.kind == closing}
    first = {move.stage: index for index, move in reversed(list(enumerate(moves))) if move.kind == "F"}
    tasks: list[Task] = []
    receives: Key | None = None
    held: Key | None = None
    task: Task | None = None  # the latest one, to which the send after it belongs
    for index, move in enumerate(moves):
        if move.kind == "recv":
            receives = move.operation, move.stage, move.microbatch
        elif move.kind == "send" and receives is None:
            assert task is not None, "a send follows a task"
            key = move.operation, move.stage, move.microbatch
            tasks.append(Task(*task[:6], key, pp_rank * pp + move.peer, task.cut))
            task = None
        elif move.kind == "send":
            held = move.operation, move.stage, move.microbatch
        else:
            if task is not None:
                tasks.append(task)
            cut = index == first[move.stage] or index == last[move.stage]
            task = Task(pp_rank, move.kind, move.stage, move.microbatch, receives, held, None, 0, cut)
            receives = held = None
    return tasks if task is None else [*tasks, task]


def _sweeps(tasks: list[list[Task]]) -> list[Sweep]:
    """Tasks of all pipeline ranks, sweep by sweep."""
    left = [iter(mine) for mine in tasks]
    following = [next(mine, None) for mine in left]
    sent: set[Key] = set()
    sweeps: list[Sweep] = []
    while any(following):
        taken: list[Task] = []
        for pp_rank, mine in enumerate(left):
            kinds: set[str] = set()
            while (task := following[pp_rank]) and task.kind not in kinds and (task.receives is None or task.receives in sent):
                kinds.add(task.kind)
                sent.update(key for key in (task.held, task.sends) if key)
                taken.append(task)
                following[pp_rank] = next(mine, None)
        assert taken, "every pipeline rank waits for another"
        sweeps.append(tuple(taken))
    return sweeps
