"""Which candidates of the max-plus recurrence are proved to end above a limit, long before their last task.

A task ends no sooner than its own seconds after the one before it on its pipeline rank. So a step takes at least the clock of
any rank, the seconds of the tasks that it has left, and those of its last reductions and its optimizer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from sim.analytic.candidates import PIPELINE_RANK, Candidates, Floats
from sim.analytic.pass_order import Loop, Task
from sim.units import Seconds

ROUNDING = 1e-9
"""Fraction of a limit by which a proved step must be above it: far more than the error of an extrapolated clock."""
LEAST_SHARE = 0.125
"""Fraction of the candidates that must be above the limit for them to be left out: others are copied then. A guess."""


class WorkLeft:
    """Seconds that pipeline ranks have left in a loop of tasks and in those behind it.

    seconds: of a task by kind and stage; sent: with its message, where the rank waits until it has left, else None."""

    def __init__(
        self,
        candidates: Candidates,
        seconds: Mapping[str, Sequence[Floats]],
        sent: Mapping[str, Sequence[Floats]] | None,
        loops: Sequence[Loop],
        limit: Seconds,
    ):
        self._limit, shape = limit * (1 + ROUNDING), (candidates.pp, len(candidates))
        works = [_work(shape, seconds, sent, loop.blocks[0] if len(loop.blocks) else ()) for loop in loops]
        of_rank = dict(zip(PIPELINE_RANK, candidates.pp_ranks, strict=True))
        self._left: Floats = np.array(of_rank["reduced"] + of_rank["updated"])
        for loop, work in zip(loops, works, strict=True):
            self._left += len(loop.blocks) * work
        self._block = works[0]

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
    shape: tuple[int, int],
    seconds: Mapping[str, Sequence[Floats]],
    sent: Mapping[str, Sequence[Floats]] | None,
    tasks: Sequence[Task],
) -> Floats:
    """Seconds of some tasks by pipeline rank and candidate."""
    found = np.zeros(shape)
    for (pp_rank, kind, stage, sends), number in Counter((one[0], one[1], one[2], one[6] is not None) for one in tasks).items():
        found[pp_rank] += number * (sent if sent is not None and sends else seconds)[kind][stage]
    return found
