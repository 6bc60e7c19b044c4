"""DualPipeV: two stages on each rank along a V, forwards and backwards in pairs whose communication overlaps their compute.

DualPipe (DeepSeek-V3, arXiv 2412.19437, section 3.2.1) feeds microbatches from both ends of a pipeline of p ranks, so that two
ranks hold each stage. Sea AI Lab cut it in half: the p / 2 ranks of one half do what both halves did, on half of the
microbatches, along a V. Order: deepseek-ai/DualPipe 3da1bbe, dualpipe/dualpipev.py (`step`); rank r of dualpipe.py has that of
rank min(r, p - 1 - r) here.

In the steady state a rank runs a forward of one stage and a backward of the other as a pair (`PAIR`): the messages of both
arrive before and leave after it, and their exchanges of tokens run beside the compute of both. Most backwards are whole
(`WHOLE`): W follows B, and the gradient leaves after it. Messages overlap with compute, as the paper says; dualpipev.py waits
for them before each chunk."""

from __future__ import annotations

from collections import deque

from sim.errors import NotDefined
from sim.plan.program import PAIR, WHOLE, Action, Program, compute

NAME = "dualpipev"
CHUNKED = True
OVERLAPS_SENDS = True
SPLITS_BACKWARD = True
RECEIVES_FIRST = False
SEARCHED = False
PLANNED = False
PAIRED = True
FORWARDS_FIRST = False


def rank_of(stage: int, ranks: int) -> int:
    """The rank of a stage: down one side of the V, and up the other one."""
    return stage if stage < ranks else 2 * ranks - 1 - stage


def actions(rank: int, ranks: int, microbatches: int, chunks: int) -> Program:
    """Compute actions of a pipeline rank; raises NotDefined unless it has two stages and at least 2 x ranks microbatches."""
    if chunks != 2 or ranks < 2:
        raise NotDefined(f"schedule {NAME} has two stages on each of two or more ranks; pp {ranks}, vpp {chunks} has not")
    if microbatches < 2 * ranks:
        raise NotDefined(f"schedule {NAME} needs at least 2 x pp {ranks} microbatches, not {microbatches}")
    program, later = _Order(rank, ranks), ranks - rank - 1
    for _ in range(2 * later):
        program.forward(0)
    for _ in range(rank + 1):
        program.forward(0)
        program.forward(1)
    for _ in range(later):
        program.backward(1, whole=False)
        program.weight()
        program.forward(1)
    for index in range(microbatches - 2 * ranks + rank + 1):
        program.forward(0, paired=index > 0 or later > 0)
        program.backward(1)
        program.pair(1, 0)
    for _ in range(later):
        program.backward(1)
        program.pair(1, 0)
    for index in range(rank + 1):
        split = (rank + 1) // 2
        program.backward(1, whole=index < split or (index == split and rank % 2 == 0))
        program.backward(0, whole=index < split)
    for _ in range(later):
        program.weight()
        program.backward(0, whole=False)
    for _ in range(rank + 1):
        program.weight()
    return tuple(program.actions)


class _Order:
    """The actions of a rank; microbatches pass each stage in order, and weight gradients are computed first in, first out."""

    def __init__(self, rank: int, ranks: int):
        self.actions: list[Action] = []
        self._stages = rank, 2 * ranks - 1 - rank
        self._forwards, self._backwards = [0, 0], [0, 0]
        self._owed: deque[tuple[int, int]] = deque()

    def forward(self, side: int, paired: bool = False) -> None:
        """The next forward of the stage on a side of the V."""
        self.actions.append(compute("F", self._stages[side], self._forwards[side], PAIR if paired else ""))
        self._forwards[side] += 1

    def backward(self, side: int, whole: bool = True) -> None:
        """The next backward of the stage on a side of the V; not `whole`: its weight gradients are owed."""
        key = self._stages[side], self._backwards[side]
        self._backwards[side] += 1
        self.actions.append(compute("B", *key, WHOLE if whole else ""))
        if whole:
            self.actions.append(compute("W", *key))
        else:
            self._owed.append(key)

    def pair(self, forward: int, backward: int) -> None:
        """A forward and a backward at the same time."""
        self.forward(forward, paired=True)
        self.backward(backward)

    def weight(self) -> None:
        """The oldest weight gradients that are owed."""
        self.actions.append(compute("W", *self._owed.popleft()))
