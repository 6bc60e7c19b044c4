"""What a rank notes as it plays, and the timeline that the notes of all ranks make.

A note is about this rank's clock (`time.perf_counter`). What a wait was for is told afterwards, from the notes of all: until
the sender had sent, or the last of a collective's ranks had come, there was no work (a bubble); from then on the network was
waited for (exposed), as the engine tells them apart.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from sim.engine.timeline import Span
from sim.plan.program import Action
from sim.units import Seconds

Key: TypeAlias = tuple[str | int, ...]
"""What tells a message or a collective from all others of a step: kind of group, first rank, turn; or the message's ends."""


class Note(NamedTuple):
    """`what` is compute, comm or wait. Of comm `start` is when this rank came to it; of wait, when it began to wait for it."""

    what: str
    lane: str
    name: str
    kind: str
    start: Seconds
    end: Seconds
    stage: int
    microbatch: int
    group: str
    key: Key


@dataclass(slots=True)
class Recorder:
    """Notes of one rank's step; compute is cut where tensor-parallel ranks exchange something within it."""

    notes: list[Note] = field(default_factory=list)
    _action: Action | None = None
    _since: Seconds = 0.0

    def begin(self, action: Action) -> None:
        """Compute begins."""
        self._action, self._since = action, time.perf_counter()

    def end(self) -> None:
        """Compute ends."""
        self._piece(time.perf_counter())
        self._action = None

    def _piece(self, now: Seconds) -> None:
        action = self._action
        if action is not None and now > self._since:
            microbatch = action.microbatch if action.kind in ("F", "B", "W") else -1
            stage = action.stage if microbatch >= 0 else -1
            self.notes.append(Note("compute", "compute", str(action), action.kind, self._since, now, stage, microbatch, "", ()))

    def within(self, name: str, start: Seconds, end: Seconds, key: Key) -> None:
        """An exchange of tensor-parallel ranks, in the midst of compute or beside it."""
        action = self._action
        if action is not None:
            self._piece(start)
            self._since = end
        stage, microbatch = (action.stage, action.microbatch) if action is not None else (-1, -1)
        self.notes.append(Note("comm", "tp", f"tp {name}", "collective", start, end, stage, microbatch, "tp", key))
        self.notes.append(Note("wait", "wait", f"tp {name}", "exposed", start, end, -1, -1, "tp", key))

    def comm(self, lane: str, kind: str, action: Action, group: str, start: Seconds, end: Seconds, key: Key) -> None:
        """A message or collective, from when this rank came to it."""
        stage, microbatch = (action.stage, action.microbatch) if kind == "send" else (-1, -1)
        self.notes.append(Note("comm", lane, str(action), kind, start, end, stage, microbatch, group, key))

    def wait(self, action: Action, group: str, start: Seconds, end: Seconds, key: Key) -> None:
        """This rank waited."""
        stage, microbatch = (action.stage, action.microbatch) if group == "pp" else (-1, -1)
        self.notes.append(Note("wait", "wait", str(action), "exposed", start, end, stage, microbatch, group, key))


def spans(notes: list[list[Note]], offsets: list[Seconds], begin: Seconds, end: Seconds) -> tuple[Span, ...]:
    """Spans of a step from the notes of all ranks; `offsets` bring their clocks to that of rank 0, by which the step began and
    ended."""
    come: dict[Key, Seconds] = {}
    arrived: dict[Key, Seconds] = {}
    for rank, own in enumerate(notes):
        for note in own:
            if note.what == "comm":
                at, until = note.start + offsets[rank], note.end + offsets[rank]
                if note.kind == "recv":
                    arrived[note.key] = until
                else:
                    come[note.key] = max(at, come.get(note.key, at))
    found: list[Span] = []
    for rank, own in enumerate(notes):
        last = begin
        for note in own:
            if note.kind == "recv":
                continue
            at, until = note.start + offsets[rank], note.end + offsets[rank]
            if note.what != "comm" or note.kind == "collective":
                last = max(last, until)
            found += _spans(rank, note, at, until, come, arrived)
        if last < end:
            found.append(Span(rank, "wait", "end of step", "bubble", last, end))
    moved = (span._replace(start=max(span.start - begin, 0.0), end=span.end - begin) for span in found)
    return tuple(sorted((span for span in moved if span.end > span.start), key=lambda span: (span.start, span.rank)))


def _spans(
    rank: int, note: Note, at: Seconds, until: Seconds, come: dict[Key, Seconds], arrived: dict[Key, Seconds]
) -> list[Span]:
    """The spans of a note, by the common clock."""
    whose = note.stage, note.microbatch, note.group
    if note.what == "compute":
        return [Span(rank, note.lane, note.name, note.kind, at, until, *whose)]
    met = come.get(note.key, at)
    if note.what == "comm":
        begun = min(max(at, met), until)
        return [Span(rank, note.lane, note.name, note.kind, begun, max(arrived.get(note.key, until), begun), *whose)]
    begun = min(max(at, met), until)
    return [
        Span(rank, "wait", f"wait {note.name}", "bubble", at, begun, *whose),
        Span(rank, "wait", note.name, "exposed", begun, until, *whose),
    ]
