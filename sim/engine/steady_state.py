"""Steady-state extrapolation: when a component repeats itself, the spans of further repetitions are copied, not simulated.

In its steady state a pipeline is periodic: it does the same for one microbatch after the other, at equal distances of time.
The simulation is deterministic, so the future of a component (`sim.engine.components`) follows from its state: where each rank
is in its program and since when, which messages and collectives are under way, how far they are, and which ranks have arrived
at them. A `Moment` is such a state, with times relative to the clock and microbatches relative to the leader's. A period is
the time between two equal moments. If the programs of all ranks repeat the actions of the period n more times, the component
repeats its events n more times. So the spans of the period are copied n times, which `sim.engine.copies` does when they are
read, and all that is under way in the component is postponed by n periods, while other components go on; they share one clock,
which is not changed. Invariant: while a component is postponed, nothing happens on its ranks and links; only gradient
collectives join it to other components, and none of them can begin without its ranks.

Exact except for the rounding of times (`ROUNDING`). Where no state recurs, every microbatch is simulated."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import simpy

from sim.engine.communication import Communication
from sim.engine.copies import Jump, copies
from sim.engine.spans import ROUNDING
from sim.engine.state import Component, Transfer
from sim.units import Seconds

LONGEST_PERIOD = 8
"""Number of moments remembered for each component, divided by pp. A leader has two for each microbatch (F and B), three with
W, so periods of up to 4 pp, or 8/3 pp, microbatches are found; interleaved passes repeat after pp microbatches. A guess; a
larger value finds longer periods and takes more memory."""

MANY = 16
"""Number of transfers under way, divided by that of ranks, above which a state is looked at only if their number recurs (a
guess). Where gradients of every microbatch wait for a slow network, their number grows to the end of the step, no state recurs,
and each look would take longer than the one before. With a smaller number some periods are found later."""


@dataclass(frozen=True, slots=True)
class Moment:
    """State of a component at time `now`: `shape` is what is compared exactly, `times` (seconds from now) with a tolerance.

    Both are relative, so that they recur where the component repeats itself. The other fields are absolute: the leader's
    microbatch, the number of spans of the component, and the piece of its program that each rank is at."""

    now: Seconds
    microbatch: int
    spans: int
    pieces: tuple[int, ...]
    shape: tuple[Hashable, ...]
    times: tuple[Seconds, ...]

    def repeats(self, earlier: Moment) -> bool:
        """Whether this is the same relative state as an earlier one."""
        tolerance = ROUNDING * self.now
        pairs = zip(self.times, earlier.times, strict=True)
        return self.shape == earlier.shape and all(abs(a - b) <= tolerance for a, b in pairs)


class SteadyState:
    """Looks for moments that recur, and extrapolates.

    `begun`: component -> microbatch of the pass of its first stage that its leader begins now. `look` is called when all events
    of the present time are processed."""

    def __init__(self, env: simpy.Environment, communication: Communication, components: list[Component], pp: int):
        self.env, self.communication, self.log = env, communication, communication.log
        self.longest = LONGEST_PERIOD * pp
        self.seen: dict[Component, dict[tuple[Hashable, ...], Moment]] = {component: {} for component in components}
        self.begun: dict[Component, int] = {}
        self._crowds: set[tuple[int, int]] = set()
        self._last_number = 0

    def look(self) -> None:
        """Extrapolate every component whose leader begins a pass now and which was in this state before."""
        for component, microbatch in self.begun.items():
            self._look(component, microbatch)
        self.begun.clear()

    def _look(self, component: Component, microbatch: int) -> None:
        """Extrapolate a component for as many periods as its programs repeat.

        With several components, it is not extrapolated while a collective that one of its ranks started is under way: such a
        collective carries weights or gradients between components. No gradient collective can begin while the component is
        postponed, because each needs one of its ranks."""
        started = (transfer for rank in component.ranks for every in rank.started.values() for transfer in every)
        if len(self.seen) > 1 and not all(transfer.has_ended for transfer in started):
            return
        if self._is_crowded(len(self.communication.transfers), len(component.ranks)):
            return
        now, seen = self._moment(component, microbatch), self.seen[component]
        earlier = seen.pop(now.shape, None)
        passes = component.ranks[0].program.rates.passes
        microbatches, rest = divmod(now.microbatch - earlier.microbatch, passes) if earlier is not None else (0, 0)
        seen[now.shape] = now if earlier is None or not rest else earlier  # a period has whole microbatches on every stage
        if rest:
            return
        if len(seen) > self.longest:
            del seen[next(iter(seen))]
        if earlier is None or not now.repeats(earlier):
            return
        seconds = now.now - earlier.now
        lengths = [piece - before for piece, before in zip(now.pieces, earlier.pieces, strict=True)]
        times = min(
            rank.program.repeats(rank.piece, length, microbatches * rank.program.rates.passes)
            for rank, length in zip(component.ranks, lengths, strict=True)
        )
        tolerance = ROUNDING * (now.now + times * seconds)  # rounding could let the copy of a shorter span end before its start
        if not times or any(self.log.spans[index].seconds < tolerance for index in component.spans[earlier.spans :]):
            return
        for rank, length in zip(component.ranks, lengths, strict=True):
            rank.piece += times * length
        self._jump(component, Jump(earlier.spans, times, seconds, microbatches))

    def _is_crowded(self, transfers: int, ranks: int) -> bool:
        """Whether so many transfers are under way that a moment is not looked at unless as many were before, and one look
        earlier."""
        crowd = (self._last_number, transfers)
        self._last_number = transfers
        is_new = transfers > MANY * ranks and crowd not in self._crowds
        if is_new:
            self._crowds.add(crowd)
        return is_new

    def _jump(self, component: Component, jump: Jump) -> None:
        """Copy the spans of a period, and postpone all that is under way in the component to the end of the last copy.

        Moments before the jump are forgotten, so that the next period contains simulated spans only (`SpanLog.names`)."""
        transfers, spans = self._transfers(component), self.log.spans
        lasts = [component.relative(rank.last) for rank in component.ranks]
        ends = [(component.relative(transfer.after), component.relative(transfer.last)) for transfer in transfers]
        copied = copies(spans, component.spans, self.log.names, jump)
        spans.join(copied)
        component.spans.join(range(copied.begin, copied.begin + len(copied)))
        late = jump.times * jump.seconds
        component.skipped += jump.times * jump.microbatches
        self.seen[component].clear()
        for rank, last in zip(component.ranks, lasts, strict=True):
            rank.last = component.absolute(last)
            rank.since = spans[rank.last].end if last < 0 else rank.since + late
            rank.until += late
        for transfer, (after, last) in zip(transfers, ends, strict=True):
            transfer.after, transfer.last = component.absolute(after), component.absolute(last)
            if transfer.ready >= 0:
                transfer.ready += late
            if transfer.begun >= 0:
                transfer.begun = spans[transfer.after].end if after < 0 else transfer.begun + late
            transfer.until += late
            if transfer.flow is not None:
                self.communication.network.put_off(transfer.flow, late)

    def _transfers(self, component: Component) -> list[Transfer]:
        """Transfers under way between the ranks of a component."""
        return [transfer for key, transfer in self.communication.transfers.items() if key[0] in component.carriers]

    def _moment(self, component: Component, microbatch: int) -> Moment:
        """The state of a component now, relative to the clock and to a microbatch."""
        now, relative, passes = self.env.now, component.relative, component.ranks[0].program.rates.passes
        shape: list[Hashable] = []
        times: list[Seconds] = []
        for rank in component.ranks:
            started = tuple(
                (k, self._relative_key(one, microbatch, passes))
                for k, every in rank.started.items()
                for one in every
                if not one.has_ended
            )
            is_busy = rank.until > now
            shape.append((rank.position, is_busy, relative(rank.last), rank.overlapped, tuple(rank.slowdowns), started))
            times += (rank.since - now, rank.until - now if is_busy else 0.0)
        by_key = {self._relative_key(transfer, microbatch, passes): transfer for transfer in self._transfers(component)}
        for key, transfer in sorted(by_key.items()):
            previous = transfer.previous
            before = previous and not previous.has_ended and self._relative_key(previous, microbatch, passes)
            is_ready, has_begun, is_delayed = transfer.ready >= 0, transfer.begun >= 0, transfer.until > now
            cause = relative(transfer.last if transfer.has_ended else transfer.after) if is_ready else None
            shape.append((key, transfer.arrivals, is_ready, has_begun, transfer.has_ended, cause, before, transfer.leg))
            shape.append((is_delayed, transfer.flow is None))
            times += (transfer.ready - now if is_ready else 0.0, transfer.begun - now if has_begun else 0.0)
            times.append(transfer.until - now if is_delayed else transfer.flow.until - now if transfer.flow else 0.0)
        pieces = tuple(rank.piece for rank in component.ranks)
        return Moment(now, microbatch, len(component.spans), pieces, tuple(shape), tuple(times))

    def _relative_key(self, transfer: Transfer, microbatch: int, passes: int) -> tuple[Any, ...]:
        """The key of a transfer with its microbatch, or its number, relative to the present one of the leader; `passes`: those
        of the leader for the largest microbatch of any stage (`sim.kernels.pass_messages.Rates`)."""
        carrier, *_, number = transfer.key
        if len(transfer.key) > 2:
            operation, stage = transfer.key[1:3]
            rate = self.communication.members[carrier][0].program.rates.of_message(operation, stage)
            return *transfer.key[:-1], number * passes - microbatch * rate
        return carrier, "", *(number - rank.arrived.get(carrier, 0) for rank in self.communication.members[carrier])
