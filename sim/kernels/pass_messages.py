"""Which messages arrive before a forward or backward of a pipeline rank, and which leave after it."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from sim.kernels import paired_passes
from sim.plan import schedules
from sim.plan.parallel_config import ParallelConfig
from sim.plan.program import Action
from sim.units import Bytes

NO_CUTS: Mapping[int, int] = MappingProxyType({})
"""The cuts of messages where all stages have equal microbatches."""


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


@dataclass(frozen=True, slots=True)
class Rates:
    """How many microbatches of a pipeline rank (`passes`), and messages between ranks, the largest microbatch of any stage is.

    by_peer: messages to and from each neighbour, `between`: those from each stage to the next one; empty where all stages have
    equal microbatches."""

    passes: int
    by_peer: Mapping[int, int]
    between: tuple[int, ...]

    @classmethod
    def of(cls, config: ParallelConfig, pp_rank: int) -> Rates:
        """The rates of a pipeline rank."""
        if not config.stage_microbatch_size:
            return cls(1, {}, ())
        cuts = [config.cuts_of(rank) for rank in range(config.pp)]
        between = tuple(map(max, itertools.pairwise(cuts)))
        borders = ((pp_rank - 1, pp_rank - 1), (pp_rank + 1, pp_rank))
        return cls(cuts[pp_rank], {peer: between[at] for peer, at in borders if 0 <= at < len(between)}, between)

    def of_action(self, action: Action) -> int:
        """That of what an action counts: its passes, or the messages of a send or receive."""
        return self.by_peer.get(action.peer, self.passes)

    def of_message(self, operation: str, stage: int) -> int:
        """That of the messages of forwards (`operation` "F") or backwards of a stage."""
        return self.between[stage if operation == "F" else stage - 1] if self.between else 1


def with_messages(
    messages: PassMessages, work: Sequence[Action], index: int, hops: Sequence[Bytes], cuts: Mapping[int, int] = NO_CUTS
) -> Iterator[Action]:
    """The compute action `work[index]` after its recv (and after a send that was held until then), and before its send.

    `hops`: bytes of each message from each stage to the next one, for the stages before the one with the head. `cuts`: number
    of messages of a pass to or from a neighbouring rank, where that is not one."""
    for one, hop in messages.before(work, index):
        yield from _messages("recv", one, hop, hops, cuts)
    for one, hop in messages.held(work, index):
        yield from _messages("send", one, hop, hops, cuts)
    yield work[index]
    for one, hop in messages.after(work, index):
        yield from _messages("send", one, hop, hops, cuts)


def _messages(kind: str, one: Action, hop: Hop, hops: Sequence[Bytes], cuts: Mapping[int, int]) -> Iterator[Action]:
    """The messages of a pass over a border."""
    if not cuts:
        yield _message(kind, hop.sender, one.microbatch, hop.peer, one.kind, hops[hop.border])
        return
    many = cuts.get(hop.peer, 1)
    for microbatch in range(one.microbatch * many, (one.microbatch + 1) * many):
        yield _message(kind, hop.sender, microbatch, hop.peer, one.kind, hops[hop.border])


def message_cuts(config: ParallelConfig, pp_rank: int) -> Mapping[int, int]:
    """Neighbouring rank -> number of messages of a pass to or from it; empty where all stages have equal microbatches."""
    others = [other for other in (pp_rank - 1, pp_rank + 1) if 0 <= other < config.pp and config.stage_microbatch_size]
    return {other: config.messages_of(pp_rank, other) for other in others}


@functools.lru_cache(maxsize=1 << 16)
def _message(kind: str, stage: int, microbatch: int, peer: int, operation: str, nbytes: Bytes) -> Action:
    """A send or recv; the same object in all programs, because the planner makes millions of them."""
    return Action(kind, stage, microbatch, peer=peer, operation=operation, nbytes=nbytes)
