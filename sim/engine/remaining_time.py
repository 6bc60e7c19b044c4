"""Remaining time: least seconds from the begin of each piece of a rank's program to the end of the step, on an idle network.

The actions of all ranks form a directed acyclic graph: an action comes after the one before it in its program, and a receive
also comes after its send. The remaining time of a piece is the length of the longest path from its first action to the end of
the step, where compute takes its seconds without interference, and a message or a collective takes the seconds that it takes
alone on the network. In a simulation none of them is quicker. Waits for other ranks of a collective, and for transfers of the
same lane, are left out. So a rank that begins a piece at some time proves that the step takes at least this time plus the
remaining time of the piece.

Several collectives of gradients may load one link. All that begin after an action, on its rank or behind its messages, pass the
link after it, so that the remaining time is at least the sum of their seconds on the link.

All programs are walked backwards, as coroutines: a walk stops at a send until that of the receiver has passed the receive."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, TypeAlias

from sim.engine.communication import Communication
from sim.engine.durations import Durations
from sim.engine.link_loads import NO_REDUCTIONS, LinkLoads, Reductions
from sim.engine.state import Rank
from sim.plan.groups import GRADIENT_KINDS
from sim.plan.program import BESIDE, COMPUTE, Action
from sim.units import Seconds

COMPUTED, RECEIVED, SENT, AWAITED, STARTED, BLOCKED = range(6)
Step: TypeAlias = tuple[int, Any, Any, Any]
"""What a walk does at an action: kind of the action; senders, name, or lanes of its transfers; how far its microbatch is from
that of its piece, or the gradients that it reduces (None: none); its seconds, of a blocking exchange also those beside it."""


def remaining_times(
    ranks: list[Rank], communication: Communication, durations: Durations, overlaps_sends: bool
) -> list[list[Seconds]]:
    """Remaining time of each piece, by class of ranks; `durations` must be without jitter."""
    return _Walks(communication, durations, overlaps_sends).run(ranks)


class _Walks:
    """Backward walks of programs. `after_receive`: message -> remaining time of its receiver, without the message, and the
    reductions that begin behind it."""

    def __init__(self, communication: Communication, durations: Durations, overlaps_sends: bool):
        self.communication, self.durations, self.overlaps_sends = communication, durations, overlaps_sends
        self.after_receive: dict[tuple[Any, ...], tuple[Seconds, Reductions]] = {}
        self._alone: dict[tuple[int, float, float], Seconds] = {}
        self._known: dict[tuple[int, tuple[object, ...]], list[Step]] = {}  # by class of ranks and form of a piece
        self._loads = LinkLoads(communication)

    def run(self, ranks: list[Rank]) -> list[list[Seconds]]:
        """Walk all programs. A walk that stops at a send goes on when the walk of the receiver passes the receive."""
        found = [[0.0] * len(rank.program) for rank in ranks]
        ready = [self._walk(rank, times) for rank, times in zip(ranks, found, strict=True)]
        stopped: dict[tuple[Any, ...], Iterator[tuple[bool, tuple[Any, ...]]]] = {}
        while ready:
            walk = ready.pop()
            for is_receive, message in walk:
                if not is_receive:
                    stopped[message] = walk
                    break
                if message in stopped:
                    ready.append(stopped.pop(message))
        return found

    def _walk(self, rank: Rank, times: list[Seconds]) -> Iterator[tuple[bool, tuple[Any, ...]]]:
        """Fill in the times of a rank; yields (True, message) when a receive is passed, and (False, message) to stop at a send
        whose receive is not passed yet."""
        after_receive, steps_of = self.after_receive, self._steps
        after_wait: dict[tuple[int, str, str, int], Seconds] = {}
        lanes: dict[int, Seconds] = {}  # remaining time at the begin of the next transfer of a lane
        left, behind = 0.0, NO_REDUCTIONS
        for index in reversed(range(len(rank.program))):
            own = rank.program.microbatch(index)
            for kind, what, more, seconds in steps_of(rank, index):
                if kind == COMPUTED:
                    left += seconds
                elif kind == RECEIVED:
                    for sender in what:
                        message = (*sender, own + more)
                        after_receive[message] = left, behind
                        yield True, message
                elif kind == SENT:
                    every = [((*sender, own + more), each) for sender, each in what]
                    for message, _ in every:
                        if message not in after_receive:
                            yield False, message
                    left += seconds
                    for message, each in every:
                        later, reductions = after_receive.pop(message)
                        left = max(left, later + each)
                        if reductions is not behind:
                            behind = self._loads.union(behind, reductions)
                            left = max(left, self._loads.seconds(behind))
                elif kind == AWAITED:
                    after_wait[what] = left
                else:
                    if kind == STARTED:
                        waited = after_wait.pop(what[0], -math.inf)
                        for lane, each in what[1]:
                            lanes[lane] = max(waited, lanes.get(lane, -math.inf), -each) + each
                            left = max(left, lanes[lane])
                    else:
                        begin = max(left, lanes.get(what, 0.0)) + seconds[0]
                        left, lanes[what] = max(begin, left + seconds[1]), begin
                    if more is not None:
                        behind = self._loads.with_one(behind, *more)
                        left = max(left, self._loads.seconds(behind))
            times[index] = left

    def _steps(self, rank: Rank, index: int) -> list[Step]:
        """What the walk of a rank does at the actions of a piece, the last one first; the same for all pieces of one form."""
        form = rank.program.form(index)
        if form is None:
            return self._steps_at(rank, index)
        if (rank.index, form) not in self._known:
            self._known[rank.index, form] = self._steps_at(rank, index)
        return self._known[rank.index, form]

    def _steps_at(self, rank: Rank, index: int) -> list[Step]:
        own, actions = rank.program.microbatch(index), reversed(rank.program.piece(index))
        return [step for action in actions if (step := self._step(rank, action, own)) is not None]

    def _step(self, rank: Rank, action: Action, own: int) -> Step | None:
        """What a walk does at an action of a piece whose microbatch is `own`; None: nothing."""
        addresses, durations, kind = self.communication.addresses, self.durations, action.kind
        includes = kind in ("collective", *BESIDE) and durations.include(rank.rank, action)
        if kind in COMPUTE or kind == "optimizer" or (kind in BESIDE and includes):
            return COMPUTED, None, None, durations.of(rank.rank, action)
        if kind in ("recv", "send"):
            senders, later = [message[:-1] for message in addresses.messages(rank, action)], action.microbatch - own
            if kind == "recv":
                return RECEIVED, senders, later, 0.0
            every = [(sender, self._seconds(sender[0], action)) for sender in senders]
            return SENT, every, later, 0.0 if self.overlaps_sends else max(seconds for _, seconds in every)
        if kind == "wait":
            return AWAITED, (action.stage, action.group, action.operation, action.part), None, 0.0
        if includes:
            return None
        carriers = addresses.carriers(rank, action)
        reduces = action.group in GRADIENT_KINDS and action.operation != "all_gather"
        reduced = (carriers, action) if reduces else None
        each = [(self.communication.lane(carrier), self._seconds(carrier, action)) for carrier in carriers]
        if kind == "start":
            return STARTED, ((action.stage, action.group, action.operation, action.part), each), reduced, 0.0
        longest = max(seconds for _, seconds in each)
        return BLOCKED, each[0][0], reduced, (longest, durations.of(rank.rank, action) if kind in BESIDE else 0.0)

    def _seconds(self, carrier: int, action: Action) -> Seconds:
        """Seconds of the transfer of an action where it is alone on the network."""
        key = carrier, action.nbytes, action.times
        if key not in self._alone:
            self._alone[key] = self.communication.seconds_alone(carrier, action)
        return self._alone[key]
