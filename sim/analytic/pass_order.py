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
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, overload

from sim.kernels import paired_passes
from sim.kernels.pass_messages import PassMessages, pass_messages
from sim.plan import schedules
from sim.plan.program import Program

Key: TypeAlias = tuple[str, int, int]
"""A message: "F" or "B", the sending stage, the microbatch."""

BLOCKS = 4
"""Blocks that are listed beyond the microbatches in flight: three of the steady state, and one in which the drain begins. With
fewer no loop is found."""
ROUNDS = 5
"""Rounds of pp microbatches that are listed with virtual stages: three of the steady state, the fill and the drain. With fewer
no loop is found."""
BLOCK = 12
"""Sweeps in one block of a loop. Where a round trip of several microbatches is the bottleneck, clocks grow equally only from
one round trip to the next; 12 is a multiple of 2, 3, 4 and 6. A larger block evaluates more tasks before it can extrapolate."""
KEPT = 8
"""Blocks of a loop that are kept once they are made: steady states are seldom found later. A guess; more take more memory."""

PAIRED = {"F": "P", "B": "Q", "W": "R"}
"""Kind of a compute action -> its kind in a pair of passes (`sim.kernels.paired_passes`)."""
OPENING, CLOSING = PAIRED["F"], PAIRED["W"]
"""Kinds of the first and of the last task of a pair."""
ARRIVING, LEAVING = {"F": "f", "B": "b"}, {"F": "x", "B": "y"}
"""Kinds of tasks that take no time: one waits for a message of a pass before a pair, one sends that of a pass after W."""


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


@functools.lru_cache(maxsize=256)
def ordered_tasks(schedule: str, pp: int, microbatches: int, vpp: int) -> tuple[Loop, ...]:
    """All tasks of a step in an order in which each follows all tasks that it depends on.

    Of many microbatches only some are listed; if these give one loop, the others extend it and shift the rest."""
    if vpp == 1 and schedules.get(schedule).CHUNKED:  # its blocks and its rounds of pp microbatches seldom agree
        return ordered_tasks_in_full(schedule, pp, microbatches, vpp)
    period = BLOCK if vpp == 1 else pp
    more = max(microbatches - _listed(schedule, pp, microbatches, vpp), 0) // period
    loops = ordered_tasks_in_full(schedule, pp, microbatches - more * period, vpp)
    if not more:
        return loops
    if len(loops) != 3 or loops[1].later != period:
        return ordered_tasks_in_full(schedule, pp, microbatches, vpp)
    head, loop, rest = loops
    longer = Loop(Repeated(loop.blocks[0], len(loop.blocks) + more, period), period)
    return head, longer, Loop((tuple(task.later(more * period) for task in rest.blocks[0]),))


def _listed(schedule: str, pp: int, microbatches: int, vpp: int) -> int:
    """Number of microbatches that are listed at least; all, where the schedule does not say how many are in flight."""
    return ROUNDS * pp if vpp > 1 else schedules.most_in_flight(schedule, pp, microbatches, 1)[0] + BLOCKS * BLOCK


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
    pp_rank, kind, stage, microbatch, receives, held, sends, lane, cut = one
    return (
        microbatch + by == other.microbatch
        and stage == other.stage
        and kind == other.kind
        and pp_rank == other.pp_rank
        and lane == other.lane
        and cut == other.cut
        and _is_shifted(receives, other.receives, by)
        and _is_shifted(held, other.held, by)
        and _is_shifted(sends, other.sends, by)
    )


def _is_shifted(one: Key | None, other: Key | None, by: int) -> bool:
    """Whether a message is another one `by` microbatches later, or neither is there."""
    if one is None or other is None:
        return one is other
    return one[2] + by == other[2] and one[1] == other[1] and one[0] == other[0]


def _tasks(schedule: str, pp_rank: int, pp: int, microbatches: int, vpp: int) -> list[Task]:
    """Tasks of a pipeline rank in the order of its program (`sim.kernels.lowering.moves`)."""
    closing = "W" if schedules.get(schedule).SPLITS_BACKWARD else "B"
    work, messages = schedules.actions(schedule, pp_rank, pp, microbatches, vpp), pass_messages(schedule, pp_rank, pp, pp * vpp)
    if messages.paired:
        return list(_tasks_in_pairs(pp_rank, pp, work, messages))
    last = {action.stage: index for index, action in enumerate(work) if action.kind == closing}
    first = {action.stage: index for index, action in reversed(list(enumerate(work))) if action.kind == "F"}
    cuts = {*first.values(), *last.values()}
    tasks: list[Task] = []
    for index, action in enumerate(work):
        receives: Key | None = None
        held: Key | None = None
        sends: Key | None = None
        lane = 0
        for one, hop in messages.before(work, index):
            receives = one.kind, hop.sender, one.microbatch
        for one, hop in messages.held(work, index):
            if receives is not None:
                held = one.kind, hop.sender, one.microbatch
            else:  # nothing arrives that it could wait for
                sent = one.kind, hop.sender, one.microbatch
                tasks[-1] = tasks[-1]._replace(sends=sent, lane=pp_rank * pp + hop.peer)
        for one, hop in messages.after(work, index):
            assert sends is None, "a task sends one message"
            sends, lane = (one.kind, hop.sender, one.microbatch), pp_rank * pp + hop.peer
        facts = pp_rank, action.kind, action.stage, action.microbatch, receives, held, sends, lane, index in cuts
        tasks.append(tuple.__new__(Task, facts))  # in a third of the time of its constructor; pipelines have 100,000 tasks
    return tasks


def _tasks_in_pairs(pp_rank: int, pp: int, work: Program, messages: PassMessages) -> Iterator[Task]:
    """Tasks of a pipeline rank whose schedule has pairs: both messages of a pair arrive before it and leave after it."""
    last = {action.stage: index for index, action in enumerate(work) if action.kind == "W"}
    first = {action.stage: index for index, action in reversed(list(enumerate(work))) if action.kind == "F"}
    cuts = {*first.values(), *last.values()}
    for index, (kind, stage, m, *_) in enumerate(work):
        in_pair = paired_passes.is_paired(work, index) or bool(paired_passes.ended_after(work, index))
        arrivals = [(one, (one.kind, hop.sender, one.microbatch)) for one, hop in messages.before(work, index)]
        departures = [
            (one, (one.kind, hop.sender, one.microbatch), pp_rank * pp + hop.peer) for one, hop in messages.after(work, index)
        ]
        for one, key in arrivals if in_pair else ():
            yield Task(pp_rank, ARRIVING[one.kind], one.stage, one.microbatch, key, None, None, 0, False)
        receives = arrivals[0][1] if arrivals and not in_pair else None
        own = PAIRED[kind] if in_pair else kind
        if kind == "W" or not departures:
            yield Task(pp_rank, own, stage, m, receives, None, None, 0, index in cuts)
        else:
            yield Task(pp_rank, own, stage, m, receives, None, *departures[0][1:], index in cuts)
        for one, key, lane in departures if kind == "W" else ():
            yield Task(pp_rank, LEAVING[one.kind], one.stage, one.microbatch, None, None, key, lane, False)


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
