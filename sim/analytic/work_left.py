"""Which candidates of the max-plus recurrence are proved to end above a limit, long before their last task.

A task ends no sooner than its own seconds after the one before it on its pipeline rank. So a step takes at least the clock of
any rank, the seconds of the tasks that it has left, and those of its last reductions and its optimizer. And behind the last
message that a rank sends back, the rank that receives it has its own last tasks, and so on to the first rank: the drain."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from sim.analytic.candidates import PIPELINE_RANK, Candidates, Floats
from sim.analytic.pass_loops import Loop, Numbers
from sim.units import Seconds

ROUNDING = 1e-9
"""Fraction of a limit by which a proved step must be above it: far more than the error of an extrapolated clock."""
LEAST_SHARE = 0.125
"""Fraction of the candidates that must be above the limit for them to be left out: others are copied then. A guess."""


class WorkLeft:
    """Seconds that pipeline ranks have left in each of the loops of a step, and behind the last one.

    seconds: of a task by kind and stage; sent: with its message, where the rank waits until it has left, else None; wire: of
    messages back, by the stage that sends them."""

    def __init__(
        self,
        candidates: Candidates,
        seconds: Mapping[str, Sequence[Floats]],
        sent: Mapping[str, Sequence[Floats]] | None,
        wire: Sequence[Floats],
        loops: Sequence[Loop],
        limit: Seconds,
    ):
        self._limit, shape = limit * (1 + ROUNDING), (candidates.pp, len(candidates))
        self._blocks = [_work(shape, seconds, sent, loop.numbers) for loop in loops]
        self._counts = [len(loop.blocks) for loop in loops]
        of_rank = dict(zip(PIPELINE_RANK, candidates.pp_ranks, strict=True))
        self._ends: Floats = np.array(of_rank["reduced"] + of_rank["updated"])
        self._drained = self._ends.copy()
        for pp_rank, stage, to_rank, behind, received in loops[-1].drains:
            if to_rank < pp_rank:  # its own drain is known
                least = self._drained[to_rank] + _work(shape, seconds, sent, received)[to_rank]
                least += (0.0 if sent is not None else wire[stage]) - _work(shape, seconds, sent, behind)[pp_rank]
                self._drained[pp_rank] = np.maximum(self._ends[pp_rank], least)

    def some(self, rows: NDArray[np.int64]) -> WorkLeft:
        """The work of the candidates of the given indices."""
        selected = copy.copy(self)
        selected._blocks = [block[:, rows] for block in self._blocks]
        selected._ends, selected._drained = self._ends[:, rows], self._drained[:, rows]
        return selected

    def of(self, number: int) -> LoopWork:
        """What is left from the loop of this number on. The drain counts before the last loop, which sends its messages."""
        left = self._drained if number + 1 < len(self._blocks) else self._ends
        for count, block in zip(self._counts[number:], self._blocks[number:], strict=True):
            left = left + count * block
        return LoopWork(self._limit, left, self._blocks[number])


class LoopWork:
    """Seconds that pipeline ranks have left in a loop of tasks and in those behind it. block: in one of its blocks."""

    def __init__(self, limit: Seconds, left: Floats, block: Floats):
        self._limit, self._left, self._block = limit, left, block

    def above(self, clocks: Sequence[Floats]) -> tuple[NDArray[np.bool_], Floats]:
        """After a further block of the loop: which candidates are to be left out, because their step is above the limit, and a
        lower bound of each step."""
        self._left = self._left - self._block
        least: Floats = (np.array(clocks) + self._left).max(axis=0)
        above = least > self._limit
        return above if above.sum() >= max(LEAST_SHARE * len(above), 1) else np.zeros(len(above), dtype=bool), least

    def keep(self, rows: NDArray[np.bool_]) -> None:
        """Leave out all other candidates."""
        self._left, self._block = self._left[:, rows], self._block[:, rows]


def _work(
    shape: tuple[int, int], seconds: Mapping[str, Sequence[Floats]], sent: Mapping[str, Sequence[Floats]] | None, tasks: Numbers
) -> Floats:
    """Seconds of some tasks by pipeline rank and candidate."""
    found = np.zeros(shape)
    for (pp_rank, kind, stage, sends), number in tasks:
        found[pp_rank] += number * (sent if sent is not None and sends else seconds)[kind][stage]
    return found
