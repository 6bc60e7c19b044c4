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
from typing import Any

from sim.engine.communication import Communication
from sim.engine.durations import Durations
from sim.engine.link_loads import NO_REDUCTIONS, LinkLoads, Reductions
from sim.engine.state import Rank
from sim.plan.groups import GRADIENT_KINDS
from sim.plan.program import BESIDE, COMPUTE, Action
from sim.units import Seconds


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
        communication, program, durations, number = self.communication, rank.program, self.durations, rank.rank
        messages_of, after_receive, seconds_of = communication.addresses.messages, self.after_receive, self._seconds
        after_wait: dict[tuple[int, str, str, int], Seconds] = {}
        lanes: dict[int, Seconds] = {}  # remaining time at the begin of the next transfer of a lane
        left, behind = 0.0, NO_REDUCTIONS
        for index in reversed(range(len(program))):
            for action in reversed(program.piece(index)):
                kind = action.kind
                if kind in COMPUTE or kind == "optimizer" or (kind in BESIDE and durations.include(number, action)):
                    left += durations.of(number, action)
                elif kind == "recv":
                    for message in messages_of(rank, action):
                        after_receive[message] = left, behind
                        yield True, message
                elif kind == "send":
                    every = messages_of(rank, action)
                    for message in every:
                        if message not in after_receive:
                            yield False, message
                    if not self.overlaps_sends:
                        left += max([seconds_of(message[0], action) for message in every])
                    for message in every:
                        later, reductions = after_receive.pop(message)
                        left = max(left, later + seconds_of(message[0], action))
                        if reductions is not behind:
                            behind = self._loads.union(behind, reductions)
                            left = max(left, self._loads.seconds(behind))
                elif kind == "wait":
                    after_wait[action.stage, action.group, action.operation, action.part] = left
                elif kind != "collective" or not self.durations.include(rank.rank, action):
                    carrier, *others = carriers = communication.addresses.carriers(rank, action)
                    lane, seconds = communication.lane(carrier), self._seconds(carrier, action)
                    if kind == "start":
                        waited = after_wait.pop((action.stage, action.group, action.operation, action.part), -math.inf)
                        for carrier in carriers:
                            lane, seconds = communication.lane(carrier), self._seconds(carrier, action)
                            lanes[lane] = max(waited, lanes.get(lane, -math.inf), -seconds) + seconds
                            left = max(left, lanes[lane])
                    else:
                        seconds = max([seconds, *(self._seconds(other, action) for other in others)])
                        begin = max(left, lanes.get(lane, 0.0)) + seconds
                        left = max(begin, left + self.durations.of(rank.rank, action)) if kind in BESIDE else begin
                        lanes[lane] = begin
                    if action.group in GRADIENT_KINDS and action.operation != "all_gather":
                        behind = self._loads.with_one(behind, carriers, action)
                        left = max(left, self._loads.seconds(behind))
            times[index] = left

    def _seconds(self, carrier: int, action: Action) -> Seconds:
        """Seconds of the transfer of an action where it is alone on the network."""
        key = carrier, action.nbytes, action.times
        if key not in self._alone:
            self._alone[key] = self.communication.seconds_alone(carrier, action)
        return self._alone[key]
