"""Recorded events of a rank, and the timeline that the events of all ranks form.

Event times are on the rank's own clock (`time.perf_counter`). The reason of a wait is derived afterwards from the events of all
ranks: until the send has started, or a collective has started on its last rank, the wait is a bubble; from then on it is
exposed communication. (The simulator counts a wait as exposed from the time of issue, which may be earlier: a message or
collective starts after the earlier ones of its thread.)
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from sim.engine.timeline import Span
from sim.plan.program import Action
from sim.units import Seconds

Key: TypeAlias = tuple[str | int, ...]
"""Identifies a message or collective within a step. Message: its ends and what it carries; collective: group, lane, ranks
(of a tied embedding the first one), count."""


class Event(NamedTuple):
    """A recorded interval; `what` is compute, comm or wait. `start` of comm: when it started on this rank, after earlier jobs
    of its thread; of wait: when the wait began."""

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
    """Events of one rank's step. Compute is split where collectives of its layers interrupt it."""

    events: list[Event] = field(default_factory=list)
    _action: Action | None = None
    _since: Seconds = 0.0

    def begin(self, action: Action) -> None:
        """Record the begin of compute."""
        self._action, self._since = action, time.perf_counter()

    def end(self) -> None:
        """Record the end of compute."""
        self._end_compute(time.perf_counter())
        self._action = None

    def _end_compute(self, now: Seconds) -> None:
        action = self._action
        if action is not None and now > self._since:
            microbatch = action.microbatch if action.kind in ("F", "B", "W") else -1
            stage = action.stage if microbatch >= 0 else -1
            self.events.append(
                Event("compute", "compute", str(action), action.kind, self._since, now, stage, microbatch, "", ())
            )

    def layer_collective(self, group: str, name: str, start: Seconds, end: Seconds, key: Key) -> None:
        """Record a collective of tp, etp or ep ranks, inside compute or beside it. Those of etp have the lane of ep, as in the
        simulator's timeline."""
        action = self._action
        if action is not None:
            self._end_compute(start)
            self._since = end
        stage, microbatch = (action.stage, action.microbatch) if action is not None else (-1, -1)
        lane, text = "ep" if group == "etp" else group, f"{group} {name}"
        self.events.append(Event("comm", lane, text, "collective", start, end, stage, microbatch, group, key))
        self.events.append(Event("wait", "wait", text, "exposed", start, end, -1, -1, group, key))

    def comm(self, lane: str, kind: str, action: Action, group: str, start: Seconds, end: Seconds, key: Key) -> None:
        """Record a message or collective, from its start on this rank."""
        stage, microbatch = (action.stage, action.microbatch) if kind == "send" else (-1, -1)
        self.events.append(Event("comm", lane, str(action), kind, start, end, stage, microbatch, group, key))

    def wait(self, action: Action, group: str, start: Seconds, end: Seconds, key: Key) -> None:
        """Record a wait of this rank."""
        stage, microbatch = (action.stage, action.microbatch) if group == "pp" else (-1, -1)
        self.events.append(Event("wait", "wait", str(action), "exposed", start, end, stage, microbatch, group, key))


def spans(events: list[list[Event]], offsets: list[Seconds], begin: Seconds, end: Seconds) -> tuple[Span, ...]:
    """Spans of a step from the events of all ranks.

    `offsets` convert each rank's clock to the clock of rank 0; `begin` and `end` of the step are on the clock of rank 0.
    """
    last_start: dict[Key, Seconds] = {}
    received: dict[Key, Seconds] = {}
    for rank, own in enumerate(events):
        for event in own:
            if event.what == "comm":
                at, until = event.start + offsets[rank], event.end + offsets[rank]
                if event.kind == "recv":
                    received[event.key] = until
                else:
                    last_start[event.key] = max(at, last_start.get(event.key, at))
    found: list[Span] = []
    for rank, own in enumerate(events):
        last = begin
        for event in own:
            if event.kind == "recv":
                continue
            at, until = event.start + offsets[rank], event.end + offsets[rank]
            if event.what != "comm" or event.kind == "collective":
                last = max(last, until)
            found += _spans(rank, event, at, until, last_start, received)
        if last < end:
            found.append(Span(rank, "wait", "end of step", "bubble", last, end))
    moved = (span._replace(start=max(span.start - begin, 0.0), end=span.end - begin) for span in found)
    return tuple(sorted((span for span in moved if span.end > span.start), key=lambda span: (span.start, span.rank)))


def _spans(
    rank: int, event: Event, at: Seconds, until: Seconds, last_start: dict[Key, Seconds], received: dict[Key, Seconds]
) -> list[Span]:
    """The spans of one event, on the common clock."""
    labels = event.stage, event.microbatch, event.group
    if event.what == "compute":
        return [Span(rank, event.lane, event.name, event.kind, at, until, *labels)]
    all_started = last_start.get(event.key, at)
    if event.what == "comm":
        begun = max(at, all_started) if all_started < until else at  # a rank that receives nothing waits for no other
        return [Span(rank, event.lane, event.name, event.kind, begun, max(received.get(event.key, until), begun), *labels)]
    begun = min(max(at, all_started), until)
    return [
        Span(rank, "wait", f"wait {event.name}", "bubble", at, begun, *labels),
        Span(rank, "wait", event.name, "exposed", begun, until, *labels),
    ]
