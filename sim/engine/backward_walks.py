"""Backward walks of compiled programs (`sim.engine.compiled`): the least seconds from each operation to the end of the step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from sim.engine.compiled import ARRIVE, AWAIT, PAUSE, RECEIVE, SEND, SENT, Leg, Program
from sim.units import Seconds

Walk: TypeAlias = tuple[int, Any, Any, tuple[tuple[int, Seconds], ...]]
"""What a backward walk needs of an operation: its kind; its seconds, keys or name, or the most seconds of one of its transfers
alone; the name under which a rank waits for these; (key, seconds) of each."""


def prepared(program: Program, alone: Callable[[tuple[Leg, ...]], Seconds]) -> list[Walk]:
    """What a walk does at each operation of a program. alone: seconds of a transfer with nothing else on the network."""
    found: list[Walk] = []
    for kind, what, *name in program:
        if kind in (SEND, ARRIVE):
            each = tuple((key, alone(legs)) for key, _, legs in what)
            found.append((kind, max(seconds for _, seconds in each), SENT if kind == SEND else name[1], each))
        else:
            found.append((kind, what, None, ()))
    return found


class Walks:
    """Walks of prepared programs: a walk stops at a message until that of the receiver has passed the receive."""

    def __init__(self, programs: Sequence[list[Walk]]):
        self.programs = programs
        self.received: dict[Any, Seconds] = {}
        self.stopped: dict[Any, int] = {}
        self.at = [len(program) - 1 for program in programs]
        self.since = [0.0] * len(programs)
        self.found = [[0.0] * len(program) for program in programs]
        self.awaited: list[dict[Any, Seconds]] = [{} for _ in programs]

    def left(self) -> list[list[Seconds]]:
        """For each operation of each program, least seconds from its begin to the end of the step, on an idle network."""
        todo = list(range(len(self.programs)))
        while todo:
            todo += self._walk(todo.pop())
        return self.found

    def _walk(self, rank: int) -> list[int]:
        """Walk a program as far as it goes; returns the ranks whose walks go on then."""
        program, times, waits, received = self.programs[rank], self.found[rank], self.awaited[rank], self.received
        left, index, freed, stopped = self.since[rank], self.at[rank], list[int](), self.stopped
        while index >= 0:
            kind, what, name, messages = program[index]
            if kind <= PAUSE:
                left += what
            elif kind == RECEIVE:
                for key in what:
                    received[key] = left
                    if key in stopped:
                        freed.append(stopped.pop(key))
            elif kind == AWAIT:
                waits[what] = left
            else:
                later = left
                if kind == SEND:
                    for key, seconds in messages:
                        if key not in received:
                            stopped[key] = rank
                            self.since[rank], self.at[rank] = left, index
                            return freed
                        later = max(later, received[key] + seconds)
                left = max(later, waits.pop(name) + what) if name in waits else later
            times[index] = left
            index -= 1
        self.since[rank], self.at[rank] = left, index
        return freed
