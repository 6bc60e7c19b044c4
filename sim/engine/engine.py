"""simulate(plan) -> Timeline: SimPy processes play the ranks' programs on the flow network.

One process plays one class of alike ranks (`sim.engine.symmetry`). Compute takes the time of the closed forms; while a
data-parallel collective of its rank is on the network, compute is slowed by the link's interference factor. Messages leave in
order over their own lane and hold the sender unless the schedule overlaps them; a receive waits for the arrival. A collective
begins when all its ranks have come. While keys and values travel around a context-parallel ring, its ranks compute attention.
Every event of an end carries the index of the span that ended with it, so that each span knows what it came after
(`Span.after`). Once replicas repeat themselves they are not played on, but told, each by itself (`sim.engine.steady`): what
they are at is put off until behind what was told, so that the clock of the run stays the true one."""

from __future__ import annotations

import bisect
import math
from collections.abc import Generator, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import simpy

from sim.engine.carriers import Key
from sim.engine.durations import Durations
from sim.engine.faults import NO_FAULTS, DrawnFaults
from sim.engine.steady import GRADIENTS, ROUNDING, Jump, Moment, Name, components, tell
from sim.engine.symmetry import Folding, fold
from sim.engine.timeline import Span, Timeline
from sim.formats import planfile
from sim.kernels import lowering
from sim.network.sharing import Flow, Network, Use
from sim.plan import schedules
from sim.plan.plan import Plan
from sim.plan.program import COMPUTE, Action
from sim.units import Bytes, Seconds

Steps: TypeAlias = Generator[simpy.Event, Any, None]

LONGEST_PERIOD = 8
"""Moments of a component that are remembered, times pp: two a microbatch, so periods of 4 pp are found (interleaved: pp). A
guess."""


def simulate(plan: Plan, folding: Folding | None = None, drawn: DrawnFaults = NO_FAULTS) -> Timeline:
    """Play one step of a plan, in the trouble that was drawn (the folding must know of it).

    The same plan and the same trouble give the same timeline, byte for byte."""
    repeats = not drawn.jitter and not drawn.down
    return _Run(plan, folding or fold(plan, drawn), drawn, jumps=repeats).timeline()


def simulate_at_length(plan: Plan, folding: Folding | None = None, drawn: DrawnFaults = NO_FAULTS) -> Timeline:
    """The same, but every microbatch is played, also those that only repeat others."""
    return _Run(plan, folding or fold(plan, drawn), drawn, jumps=False).timeline()


@dataclass(slots=True, eq=False)
class _Transfer:
    """A message or a collective, from the first rank that comes to it until it has ended; a message until it is received.

    Times are below 0 until they are known: `started` is when the sender gave it away or the last of the ranks came, after the
    span `after`; `before` is what it waits for then; `begun` when it goes onto the network; `until` the end of a leg's latency;
    `last` the span that it ended with."""

    key: tuple[Any, ...]
    comers: int = 0
    started: Seconds = -1.0
    begun: Seconds = -1.0
    before: _Transfer | None = None
    after: int = -1
    leg: int = -1
    until: Seconds = 0.0
    flow: Flow | None = None
    last: int = -1
    has_ended: bool = False
    done: simpy.Event | None = None

    def ended(self, env: simpy.Environment) -> simpy.Event:
        """The event of its end, for those who wait for it."""
        if self.done is None:
            self.done = env.event()
        return self.done

    def end(self, last: int) -> None:
        """It has ended with a span."""
        self.last, self.has_ended = last, True
        if self.done is not None:
            self.done.succeed(last)


@dataclass(slots=True, eq=False)
class _Component:
    """Ranks that repeat themselves together (`sim.engine.steady.components`), the first of them leading; the carriers between
    them, the numbers of their spans, moments that were seen, and how many microbatches were told and not played.

    Microbatches go on behind a jump as though nothing had been left out; spans are told with their true numbers."""

    ranks: list[_Rank] = field(default_factory=list)
    carriers: set[int] = field(default_factory=set)
    spans: list[int] = field(default_factory=list)
    seen: dict[tuple[Hashable, ...], Moment] = field(default_factory=dict)
    skipped: int = 0

    def ago(self, span: int) -> int:
        """A span, counted from the end of the component's own (-1 is the last); from 0 on where it is none of them."""
        place = bisect.bisect_left(self.spans, span)
        return place - len(self.spans) if place < len(self.spans) and self.spans[place] == span else span + 1

    def span(self, ago: int) -> int:
        """The span that is so long ago."""
        return self.spans[ago] if ago < 0 else ago - 1


@dataclass(slots=True, eq=False)
class _Rank:
    """The moving state of one class of ranks. It is at action `inside` of `piece` of its program, since `since`, and computes
    until `until`; `last` is the span whose end let it go on."""

    name: int
    rank: int
    place: int
    program: lowering.Lowered
    component: _Component
    piece: int = -1
    inside: int = 0
    since: Seconds = 0.0
    until: Seconds = 0.0
    last: int = -1
    outstanding: int = 0
    behind: list[float] = field(default_factory=list)
    changed: simpy.Event | None = None
    turns: dict[int, int] = field(default_factory=dict)
    started: dict[tuple[int, str, str, int], _Transfer] = field(default_factory=dict)


def _streams(folding: Folding) -> dict[int, int]:
    """Gradient collectives of one group go over one stream, whatever their operation: carrier -> the stream's name."""
    of_group: dict[Key, int] = {}
    return {index: of_group.setdefault(key[:2], index) for key, index in folding.of.items() if key[0] in GRADIENTS}


class _Run:
    """One simulation: its clock, its network and its spans live and die with it."""

    def __init__(self, plan: Plan, folding: Folding, drawn: DrawnFaults, jumps: bool):
        self.plan, self.folding, self.config = plan, folding, plan.config
        self.env = simpy.Environment()
        self.network = Network(self.env, folding.capacities)
        self.spans: list[Span] = []
        self.names: dict[int, Name] = {}
        self.transfers: dict[tuple[Any, ...], _Transfer] = {}
        self.lanes: dict[int, _Transfer] = {}
        self.carriers: dict[tuple[int, str, str | int], int] = {}
        self.legs: dict[tuple[int, Bytes, float], tuple[tuple[Seconds, Use, Bytes], ...]] = {}
        self.durations = Durations(plan, drawn)
        self.streams = _streams(folding)
        self.overlaps_sends = schedules.get(plan.config.schedule).OVERLAPS_SENDS
        parts = components(folding, plan.config)
        self.components = [_Component() for _ in parts]
        of = {name: component for component, part in zip(self.components, parts, strict=True) for name in part}
        self.ranks = list(self._ranks(of))
        self.members = [[self.ranks[member] for member in carrier.members] for carrier in folding.carriers]
        for rank in self.ranks:
            rank.component.ranks.append(rank)
        for index, members in enumerate(self.members):
            if len(parts) == 1 or index not in self.streams:
                members[0].component.carriers.add(index)
        self.events = 0
        # the steady state: the microbatches that leading ranks have begun now
        self.looks = jumps
        self.begun: dict[_Component, int] = {}

    def _ranks(self, of: dict[int, _Component]) -> Iterator[_Rank]:
        programs: dict[tuple[int, int], lowering.Lowered] = {}
        for name, rank in enumerate(self.folding.representatives):
            _, dp_cp, place = self.config.place(rank)
            key = place, self.config.microbatches_of(dp_cp)
            if key not in programs:
                programs[key] = lowering.Lowered(self.plan, *key)
            yield _Rank(name, rank, place, programs[key], of[name])

    def timeline(self) -> Timeline:
        for link, begin, until in self.folding.closed:
            self.env.process(self._close(link, begin, until))
        end = self.env.all_of([self.env.process(self._play(rank)) for rank in self.ranks])
        while not end.processed:
            self.env.step()
            self.events += 1
            if self.begun and self.env.peek() > self.env.now:
                for component, microbatch in self.begun.items():
                    self._look(component, microbatch)
                self.begun.clear()
        return self._finished()

    def _finished(self) -> Timeline:
        spans = self.spans
        step = max(span.end for span in spans)
        ends = dict.fromkeys((rank.rank for rank in self.ranks), 0.0)
        for span in spans:
            if span.kind != "send" and span.end > ends[span.rank]:
                ends[span.rank] = span.end
        idle = ((rank, end) for rank, end in ends.items() if end < step)
        return Timeline(
            name=f"{self.plan.topology.name} {self.plan.workload.model.name}",
            origin="simulated",
            plan_digest=planfile.digest(self.plan),
            step_s=step,
            tokens=self.plan.workload.tokens,
            flops=self.plan.workload.flops,
            alike=self.folding.alike,
            spans=(*spans, *(Span(rank, "wait", "end of step", "bubble", end, step) for rank, end in idle)),
            events=self.events,
        )

    def _span(
        self,
        rank: _Rank,
        lane: str,
        kind: str,
        start: Seconds,
        end: Seconds,
        action: Action,
        group: str = "",
        after: int = -1,
        prefix: str = "",
        has_microbatch: bool = True,
    ) -> int:
        """Note a span; the index of what has ended: the span, or where it took no time what it came after."""
        if end <= start:
            return after
        index, number = len(self.spans), action.microbatch + rank.component.skipped
        stage, microbatch = (action.stage, number) if has_microbatch else (-1, -1)
        head, tail = action.text
        name = f"{prefix}{head}" if tail is None else f"{prefix}{head}{number}{tail}"
        self.spans.append(Span(rank.rank, lane, name, kind, start, end, stage, microbatch, group, after))
        self.names[index] = prefix + head, number, tail
        rank.component.spans.append(index)
        return index

    def _play(self, rank: _Rank) -> Steps:
        while rank.piece + 1 < len(rank.program):
            rank.piece += 1
            for inside, action in enumerate(self._piece(rank)):
                rank.inside, rank.since = inside, self.env.now
                if action.kind in COMPUTE:
                    if rank is rank.component.ranks[0] and action.part == 0 and action.stage == rank.place and self.looks:
                        self.begun[rank.component] = action.microbatch
                    yield from self._compute(rank, action)
                elif action.kind == "send" and self.overlaps_sends:
                    self.env.process(self._send(rank, action))
                elif action.kind == "send":
                    rank.last = yield from self._send(rank, action)
                    self._span(rank, "wait", "exposed", rank.since, self.env.now, action, "pp")
                elif action.kind == "recv":
                    yield from self._receive(rank, action)
                elif action.kind == "collective" and self.durations.include(rank.rank, action):
                    continue
                elif action.kind == "collective":
                    transfer, is_last = self._meet(rank, action)
                    if is_last:
                        rank.last = yield from self._collective(transfer, action, rank, rank.last)
                    yield from self._await(rank, action, transfer, action.group)
                elif action.kind == "ring":
                    transfer = self._start(rank, action)
                    yield from self._compute(rank, action)
                    rank.since = self.env.now
                    yield from self._await(rank, action, transfer, action.group)
                elif action.kind == "start":
                    transfer = self._start(rank, action)
                    rank.started[action.stage, action.group, action.operation, action.part] = transfer
                elif action.kind == "wait":
                    transfer = rank.started[action.stage, action.group, action.operation, action.part]
                    yield from self._await(rank, action, transfer, "wait")
                else:
                    yield from self._compute(rank, action)

    def _piece(self, rank: _Rank) -> tuple[Action, ...]:
        """The piece of its program that a rank comes to; microbatches that were skipped do not count."""
        piece = rank.program.piece(rank.piece)
        skipped = rank.component.skipped
        return tuple(action.earlier(skipped) for action in piece) if skipped else piece

    # compute

    def _take(self, what: _Rank | _Transfer, seconds: Seconds) -> Steps:
        """Let it take its time; a jump may put off the end."""
        what.until = self.env.now + seconds
        while seconds > 0.0:
            yield self.env.timeout(seconds)
            seconds = self._left(what)

    def _left(self, what: _Rank | _Transfer) -> Seconds:
        """How long it takes from now on, rounded up so that the clock comes to its end at once; 0 when it has come there."""
        now, seconds = self.env.now, max(what.until - self.env.now, 0.0)
        return seconds if now + seconds >= what.until else math.nextafter(seconds, math.inf)

    def _compute(self, rank: _Rank, action: Action) -> Steps:
        left = self.durations.of(rank.rank, action)
        while rank.outstanding and left > 0.0:
            slow = 1.0 + max(rank.behind, default=0.0)
            rank.changed, seconds = self.env.event(), left * slow
            rank.until = self.env.now + seconds
            while seconds > 0.0 and not rank.changed.triggered:
                yield self.env.timeout(seconds) | rank.changed
                seconds = self._left(rank)
            left = seconds / slow
        rank.changed = None
        yield from self._take(rank, left)
        kind = action.kind if action.kind != "ring" else "F" if action.operation == "F" else "B"
        is_of = kind in COMPUTE
        rank.last = self._span(
            rank, "compute", kind, rank.since, self.env.now, action, after=rank.last, has_microbatch=is_of
        )  # fmt: skip

    # messages and collectives on the network

    def _close(self, link: int, begin: Seconds, until: Seconds) -> Steps:
        """A link carries nothing for a while."""
        yield self.env.timeout(begin)
        self.network.set_capacity(link, 0.0)
        yield self.env.timeout(until - begin)
        self.network.set_capacity(link, self.folding.capacities[link])

    def _transfer(self, key: tuple[Any, ...]) -> _Transfer:
        """The transfer of a key, new for the first that comes to it."""
        transfer = self.transfers.get(key)
        if transfer is None:
            transfer = self.transfers[key] = _Transfer(key)
        return transfer

    def _carry(self, transfer: _Transfer, action: Action) -> Steps:
        """Overhead and latencies first, then the bytes; one leg after the other."""
        for leg, (delay, use, nbytes) in enumerate(self._legs(transfer.key[0], action)):
            transfer.leg = leg
            if delay:
                yield from self._take(transfer, delay)
            transfer.flow = self.network.start(use, nbytes)
            yield transfer.flow
            transfer.flow = None

    def _legs(self, carrier: int, action: Action) -> tuple[tuple[Seconds, Use, Bytes], ...]:
        """(latency, links, bytes) of the legs of the way that a payload takes; the overhead comes with the first latency."""
        key = carrier, action.nbytes, action.times
        if key not in self.legs:
            route, count = self.folding.carriers[carrier].route(action.nbytes), action.times
            delays = [count * leg.latency for leg in route.legs]
            delays[0] += count * route.overhead
            sizes = (count * action.nbytes * leg.share for leg in route.legs)
            self.legs[key] = tuple(zip(delays, (leg.use for leg in route.legs), sizes, strict=True))
        return self.legs[key]

    def _in_turn(self, transfer: _Transfer, lane: int, after: int) -> Steps:
        """Put a transfer on its lane, behind those that are there."""
        before = self.lanes.get(lane)
        self.lanes[lane] = transfer
        transfer.started, transfer.after = self.env.now, after
        if before is not None and not before.has_ended:
            transfer.before = before
            transfer.after = yield before.ended(self.env)
        transfer.begun = self.env.now

    def _neighbour(self, rank: _Rank, place: int) -> int:
        tp, dp_cp, _ = self.config.place(rank.rank)
        return self.config.rank(tp, dp_cp, place)

    def _message(self, rank: _Rank, action: Action) -> _Transfer:
        """The message of a send or recv."""
        key = rank.name, action.kind, action.peer
        if key not in self.carriers:
            ends = rank.rank, self._neighbour(rank, action.peer)
            self.carriers[key] = self.folding.of["message", *(ends if action.kind == "send" else ends[::-1])]
        stage = action.stage
        return self._transfer((self.carriers[key], action.operation, stage, action.microbatch))

    def _send(self, rank: _Rank, action: Action) -> Generator[simpy.Event, Any, int]:
        transfer = self._message(rank, action)
        yield from self._in_turn(transfer, transfer.key[0], rank.last)
        yield from self._carry(transfer, action)
        lane = "send" if action.operation == "F" else "return"
        last = self._span(rank, lane, "send", transfer.begun, self.env.now, action, "pp", transfer.after)
        transfer.end(last)
        return last

    def _receive(self, rank: _Rank, action: Action) -> Steps:
        transfer = self._message(rank, action)
        if not transfer.has_ended:
            rank.last = yield transfer.ended(self.env)
        del self.transfers[transfer.key]
        begun = min(max(rank.since, transfer.started), self.env.now)
        if begun > rank.since:
            of = Action(action.operation, action.stage, action.microbatch)
            self._span(rank, "wait", "bubble", rank.since, begun, of, "pp", prefix="wait ")
        self._span(rank, "wait", "exposed", begun, self.env.now, action, "pp")

    # collectives

    def _carrier(self, rank: _Rank, action: Action) -> int:
        operation = "send_recv" if action.kind == "ring" else action.operation
        key = rank.name, action.group, operation
        if key not in self.carriers:
            config, (tp, dp_cp, place) = self.config, self.config.place(rank.rank)
            first = {
                "tp": config.rank(0, dp_cp, place),
                "cp": config.rank(tp, dp_cp - dp_cp % config.cp, place),
                "ep": config.rank(tp, dp_cp - dp_cp % config.ep, place),
                "dp": config.rank(tp, 0, place),
                "edp": config.rank(tp, dp_cp % config.ep, place),
                "embedding": config.rank(tp, dp_cp, 0),
            }[action.group]
            self.carriers[key] = self.folding.of[action.group, first, operation]
        return self.carriers[key]

    def _meet(self, rank: _Rank, action: Action) -> tuple[_Transfer, bool]:
        """Come to the next collective of a carrier; whether this rank is the last of its ranks to come."""
        index = self._carrier(rank, action)
        turn = rank.turns.get(index, 0)
        rank.turns[index] = turn + 1
        transfer = self._transfer((index, turn))
        transfer.comers += 1
        return transfer, transfer.comers == len(self.members[index])

    def _start(self, rank: _Rank, action: Action) -> _Transfer:
        """Come to a collective that goes on behind the compute of its ranks."""
        rank.outstanding += 1
        transfer, is_last = self._meet(rank, action)
        if is_last:
            self.env.process(self._collective(transfer, action, rank, rank.last))
        return transfer

    def _collective(self, transfer: _Transfer, action: Action, latest: _Rank, after: int) -> Generator[simpy.Event, Any, int]:
        index = transfer.key[0]
        yield from self._in_turn(transfer, self.streams.get(index, index), after)
        is_behind = action.kind != "collective"
        if is_behind:
            self._overlap(index, 1)
        yield from self._carry(transfer, action)
        if is_behind:
            self._overlap(index, -1)
        last = transfer.after
        lane, is_inside = "dp" if action.group == "embedding" else action.group, action.group in ("tp", "cp", "ep")
        for rank in self.members[index]:
            span = self._span(
                rank, lane, "collective", transfer.begun, self.env.now, action, action.group, transfer.after,
                has_microbatch=is_inside,
            )  # fmt: skip
            last = span if rank is latest else last
        del self.transfers[transfer.key]
        transfer.end(last)
        return last

    def _overlap(self, index: int, change: int) -> None:
        """A collective of these ranks goes onto the network behind their compute, or leaves it."""
        interference = self.folding.carriers[index].interference
        for rank in self.members[index]:
            if change > 0:
                rank.behind.append(interference)
            else:
                rank.behind.remove(interference)
                rank.outstanding -= 1
            if rank.changed is not None and not rank.changed.triggered:
                rank.changed.succeed()

    def _await(self, rank: _Rank, action: Action, transfer: _Transfer, lane: str) -> Steps:
        if not transfer.has_ended:
            rank.last = yield transfer.ended(self.env)
        begun = min(max(rank.since, transfer.started), self.env.now)
        group = action.group
        self._span(rank, "wait", "bubble", rank.since, begun, action, group, prefix="wait ", has_microbatch=False)
        self._span(rank, "wait", "exposed", begun, self.env.now, action, group, has_microbatch=False)

    # the steady state

    def _look(self, component: _Component, microbatch: int) -> None:
        """Jump over what repeats, where the component has been in this state before.

        With others beside it, not while a collective with them goes on that one of its ranks has begun: in the opening of the
        step and in its closing, weights and gradients travel. All of them need its ranks, so none can begin behind its back."""
        begun = (transfer for rank in component.ranks for transfer in rank.started.values())
        if len(self.components) > 1 and not all(transfer.has_ended for transfer in begun):
            return
        now = self._moment(component, microbatch)
        earlier = component.seen.pop(now.shape, None)
        component.seen[now.shape] = now
        if len(component.seen) > LONGEST_PERIOD * self.config.pp:
            del component.seen[next(iter(component.seen))]
        if earlier is None or not now.repeats(earlier):
            return
        microbatches, seconds = now.microbatch - earlier.microbatch, now.now - earlier.now
        lengths = [piece - before for piece, before in zip(now.pieces, earlier.pieces, strict=True)]
        times = min(
            rank.program.repeats(rank.piece, length, microbatches)
            for rank, length in zip(component.ranks, lengths, strict=True)
        )
        dust = ROUNDING * (now.now + times * seconds)
        if not times or any(self.spans[index].seconds < dust for index in component.spans[earlier.spans :]):
            return
        for rank, length in zip(component.ranks, lengths, strict=True):
            rank.piece += times * length
        self._jump(component, Jump(earlier.spans, times, seconds, microbatches))

    def _jump(self, component: _Component, jump: Jump) -> None:
        """Tell what repeats, and put off what is under way; until then nothing happens in the component and on its links."""
        transfers = self._transfers(component)
        lasts = [component.ago(rank.last) for rank in component.ranks]
        afters = [(component.ago(transfer.after), component.ago(transfer.last)) for transfer in transfers]
        tell(self.spans, component.spans, self.names, jump)
        late = jump.times * jump.seconds
        component.skipped += jump.times * jump.microbatches
        component.seen.clear()
        for rank, last in zip(component.ranks, lasts, strict=True):
            rank.last = component.span(last)
            rank.since = self.spans[rank.last].end if last < 0 else rank.since + late
            rank.until += late
        for transfer, (after, last) in zip(transfers, afters, strict=True):
            transfer.after, transfer.last = component.span(after), component.span(last)
            if transfer.started >= 0:
                transfer.started += late
            if transfer.begun >= 0:
                transfer.begun = self.spans[transfer.after].end if after < 0 else transfer.begun + late
            transfer.until += late
            if transfer.flow is not None:
                self.network.put_off(transfer.flow, late)

    def _transfers(self, component: _Component) -> list[_Transfer]:
        """What is under way between the ranks of a component."""
        return [transfer for key, transfer in self.transfers.items() if key[0] in component.carriers]

    def _moment(self, component: _Component, microbatch: int) -> Moment:
        """The state of a component now, when all that happens now has happened."""
        now, ago = self.env.now, component.ago
        shape: list[Hashable] = []
        times: list[Seconds] = []
        for rank in component.ranks:
            under_way = tuple((k, self._about(t, microbatch)) for k, t in rank.started.items() if not t.has_ended)
            is_busy = rank.until > now
            shape.append((rank.inside, is_busy, ago(rank.last), rank.outstanding, tuple(rank.behind), under_way))
            times += (rank.since - now, rank.until - now if is_busy else 0.0)
        about = {self._about(transfer, microbatch): transfer for transfer in self._transfers(component)}
        for name, transfer in sorted(about.items()):
            before = transfer.before and not transfer.before.has_ended and self._about(transfer.before, microbatch)
            has_started, has_begun, is_late = transfer.started >= 0, transfer.begun >= 0, transfer.until > now
            came = ago(transfer.last if transfer.has_ended else transfer.after) if has_started else None
            shape.append((name, transfer.comers, has_started, has_begun, transfer.has_ended, came, before, transfer.leg))
            shape.append((is_late, transfer.flow is None))
            times += (transfer.started - now if has_started else 0.0, transfer.begun - now if has_begun else 0.0)
            times.append(transfer.until - now if is_late else transfer.flow.until - now if transfer.flow else 0.0)
        pieces = tuple(rank.piece for rank in component.ranks)
        return Moment(now, microbatch, len(component.spans), pieces, tuple(shape), tuple(times))

    def _about(self, transfer: _Transfer, microbatch: int) -> tuple[Any, ...]:
        """The key of a transfer, with its microbatch or its turn counted from now."""
        carrier, *_, number = transfer.key
        if len(transfer.key) > 2:
            return *transfer.key[:-1], number - microbatch
        return carrier, "", *(number - rank.turns.get(carrier, 0) for rank in self.members[carrier])
