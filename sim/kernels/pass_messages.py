"""Which messages arrive before a forward or backward of a pipeline rank, and which leave after it."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sim.kernels import paired_passes
from sim.plan import schedules
from sim.plan.program import Action


class Hop(NamedTuple):
    """A message of a pass: the stage that sends it, the pipeline rank at the other end, and the border that it crosses, by the
    number of the stage before it."""

    sender: int
    peer: int
    border: int


@dataclass(frozen=True, slots=True)
class PassMessages:
    """The messages of the passes of a pipeline rank, by kind and stage of the pass; none within a rank.

    waits: a forward's send waits for the gradient of the microbatch so many before its own; negative if none waits. paired:
    whether forwards may run at the same time as a backward."""

    arrivals: dict[tuple[str, int], Hop]
    departures: dict[tuple[str, int], Hop]
    waits: int
    paired: bool

    def before(self, work: Sequence[Action], index: int) -> Sequence[tuple[Action, Hop]]:
        """The passes whose messages arrive before the compute action `work[index]`, with these messages."""
        return self._of(self.arrivals, paired_passes.received_before(work, index) if self.paired else (work[index],))

    def held(self, work: Sequence[Action], index: int) -> Sequence[tuple[Action, Hop]]:
        """The forward before the compute action `work[index]`, whose send waits for what arrives before that action."""
        return self._of(self.departures, (work[index - 1],)) if index and self._waits(work[index - 1], work[index]) else ()

    def after(self, work: Sequence[Action], index: int) -> Sequence[tuple[Action, Hop]]:
        """The passes whose messages leave as soon as the compute action `work[index]` has ended, with these messages."""
        if self.waits >= 0 and index + 1 < len(work) and self._waits(work[index], work[index + 1]):
            return ()
        return self._of(self.departures, paired_passes.sent_after(work, index) if self.paired else (work[index],))

    def held_around(self, work: Sequence[Action], index: int) -> tuple[int, bool] | None:
        """What decides about the messages around the compute action `work[index]` beside that action, where passes are not
        `paired`: the stage of a forward before it whose send is held until then (-1: none), and whether its own send is held.
        None where no send waits."""
        if self.waits < 0:
            return None
        before = work[index - 1].stage if index and self._waits(work[index - 1], work[index]) else -1
        return before, index + 1 < len(work) and self._waits(work[index], work[index + 1])

    def _waits(self, action: Action, following: Action) -> bool:
        """Whether a forward's send waits for the next gradient: in the steady state of schedules that receive first."""
        pair = action.kind == "F" and following.kind == "B"
        return pair and action.microbatch - following.microbatch == self.waits

    @staticmethod
    def _of(hops: dict[tuple[str, int], Hop], passes: Sequence[Action]) -> Sequence[tuple[Action, Hop]]:
        return [(one, hops[key]) for one in passes if (key := (one.kind, one.stage)) in hops]


@functools.lru_cache(maxsize=4096)
def pass_messages(schedule: str, pp_rank: int, pp: int, stages: int) -> PassMessages:
    """The messages of the passes of pipeline rank `pp_rank` of `pp`; `stages` compute something."""
    arrivals = {(kind, stage): hop for kind, stage, hop in _hops(schedule, pp_rank, pp, stages, -1)}
    departures = {(kind, stage): hop for kind, stage, hop in _hops(schedule, pp_rank, pp, stages, 1)}
    waits = pp - pp_rank - 1 if schedules.get(schedule).RECEIVES_FIRST else -1
    return PassMessages(arrivals, departures, waits, schedules.is_paired(schedule))


def _hops(schedule: str, pp_rank: int, pp: int, stages: int, ahead: int) -> Iterator[tuple[str, int, Hop]]:
    """The messages of each pass of a rank to the stage `ahead` in its direction, or from it where that is negative."""
    for kind, direction in (("F", ahead), ("B", -ahead)):
        for stage in schedules.stages_of(schedule, pp_rank, pp, stages):
            other = stage + direction
            peer = schedules.rank_of(schedule, other, pp) if 0 <= other < stages else pp_rank
            if peer != pp_rank:
                yield kind, stage, Hop(stage if ahead > 0 else other, peer, min(stage, other))
