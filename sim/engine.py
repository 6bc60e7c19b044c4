"""simulate(plan) -> Timeline: SimPy processes play the ranks' programs on the flow network.

One process plays one class of alike ranks (`sim.folding`). Compute takes the time of the closed forms; while a data-parallel
collective of its rank is on the network, compute is slowed by the link's interference factor. Messages leave in order over
their own lane and hold the sender unless the schedule overlaps them; a receive waits for the arrival. A collective begins
when all its ranks have come. While keys and values travel around a context-parallel ring, its ranks compute attention. Every
event of an end carries the index of the span that ended with it, so that each span knows what it came after (`Span.after`)."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import simpy

from sim import compute, costs, lowering, planfile, schedules
from sim.folding import Carrier, Folding, Key, fold
from sim.network import Network
from sim.plan import Plan
from sim.program import COMPUTE, Action
from sim.timeline import Span, Timeline
from sim.units import Seconds

Steps: TypeAlias = Generator[simpy.Event, Any, None]


def simulate(plan: Plan, folding: Folding | None = None) -> Timeline:
    """Play one step of a plan. The same plan gives the same timeline, byte for byte."""
    return _Run(plan, folding or fold(plan)).timeline()


@dataclass(slots=True)
class _Meeting:
    """One collective: who has come, when the last of them came, and the events of its begin and end."""

    begun: simpy.Event
    done: simpy.Event
    arrived: int = 0
    started: Seconds = 0.0


@dataclass(slots=True)
class _Message:
    """One message: when its sender gave it away, and the event of its arrival."""

    arrived: simpy.Event
    started: Seconds = 0.0


@dataclass(slots=True)
class _Rank:
    """The moving state of one class of ranks. `last` is the span whose end let it go on."""

    name: int
    rank: int
    place: int
    last: int = -1
    outstanding: int = 0
    behind: list[float] = field(default_factory=list)
    changed: simpy.Event | None = None
    meetings: dict[int, int] = field(default_factory=dict)
    started: dict[tuple[int, str, str, int], _Meeting] = field(default_factory=dict)


def _streams(folding: Folding) -> dict[int, int]:
    """Gradient collectives of one group go over one stream, whatever their operation: carrier -> the stream's name."""
    of_group: dict[Key, int] = {}
    return {index: of_group.setdefault(key[:2], index) for key, index in folding.of.items() if key[0] in ("dp", "edp")}


class _Run:
    """One simulation: its clock, its network and its spans live and die with it."""

    def __init__(self, plan: Plan, folding: Folding):
        self.plan, self.folding, self.config = plan, folding, plan.config
        self.env = simpy.Environment()
        self.network = Network(self.env, folding.capacities)
        self.spans: list[Span] = []
        self.meetings: dict[tuple[int, int], _Meeting] = {}
        self.messages: dict[tuple[int, str, int, int], _Message] = {}
        self.lanes: dict[int, simpy.Event] = {}
        self.members: dict[int, list[_Rank]] = {}
        self.seconds: dict[tuple[int, str, str, int], Seconds] = {}
        self.measured: dict[int, bool] = {}
        self.streams = _streams(folding)
        self.overlaps_sends = schedules.get(plan.config.schedule).OVERLAPS_SENDS
        self.events = 0

    def timeline(self) -> Timeline:
        programs: dict[tuple[int, int], tuple[Action, ...]] = {}
        ranks = []
        for name, rank in enumerate(self.folding.representatives):
            _, dp_cp, place = self.config.place(rank)
            key = place, self.config.microbatches_of(dp_cp)
            if key not in programs:
                programs[key] = lowering.program(self.plan, *key)
            ranks.append((_Rank(name, rank, place), programs[key]))
        by_class = {rank.name: rank for rank, _ in ranks}
        for index, carrier in enumerate(self.folding.carriers):
            self.members[index] = [by_class[member] for member in carrier.members]
        players = [self.env.process(self._play(rank, program)) for rank, program in ranks]
        self.env.run(until=self.env.all_of(players))
        return self._finished(ranks)

    def _finished(self, ranks: list[tuple[_Rank, tuple[Action, ...]]]) -> Timeline:
        step, ends = 0.0, dict.fromkeys((rank.rank for rank, _ in ranks), 0.0)
        for span in self.spans:
            step = max(step, span.end)
            if span.kind != "send":
                ends[span.rank] = max(ends[span.rank], span.end)
        for rank, _ in ranks:
            self._span(rank, "wait", "end of step", "bubble", ends[rank.rank], step)
        return Timeline(
            name=f"{self.plan.topology.name} {self.plan.workload.model.name}",
            origin="simulated",
            plan_digest=planfile.digest(self.plan),
            step_s=step,
            tokens=self.plan.workload.tokens,
            flops=self.plan.workload.flops,
            alike=self.folding.alike,
            spans=tuple(self.spans),
            events=self.events,
        )

    def _span(
        self,
        rank: _Rank,
        lane: str,
        name: str,
        kind: str,
        start: Seconds,
        end: Seconds,
        action: Action | None = None,
        group: str = "",
        after: int = -1,
    ) -> int:
        """Note a span; the index of what has ended: the span, or where it took no time what it came after."""
        if end <= start:
            return after
        stage, microbatch = (action.stage, action.microbatch) if action else (-1, -1)
        self.spans.append(Span(rank.rank, lane, name, kind, start, end, stage, microbatch, group, after))
        return len(self.spans) - 1

    def _play(self, rank: _Rank, program: tuple[Action, ...]) -> Steps:
        for action in program:
            self.events += 1
            if action.kind in COMPUTE or action.kind == "optimizer":
                yield from self._compute(rank, action)
            elif action.kind == "send" and self.overlaps_sends:
                self.env.process(self._send(rank, action, rank.last))
            elif action.kind == "send":
                start = self.env.now
                rank.last = yield from self._send(rank, action, rank.last)
                self._span(rank, "wait", str(action), "exposed", start, self.env.now, action, "pp")
            elif action.kind == "recv":
                yield from self._receive(rank, action)
            elif action.kind == "collective" and self._is_measured(rank, action):
                continue
            elif action.kind == "collective":
                meeting = self._meet(rank, action)
                yield from self._await(rank, action, meeting, action.group)
            elif action.kind == "ring":
                rank.outstanding += 1
                meeting = self._meet(rank, action)
                yield from self._compute(rank, action)
                yield from self._await(rank, action, meeting, action.group)
            elif action.kind == "start":
                rank.outstanding += 1
                rank.started[action.stage, action.group, action.operation, action.part] = self._meet(rank, action)
            else:
                meeting = rank.started[action.stage, action.group, action.operation, action.part]
                yield from self._await(rank, action, meeting, "wait")

    # compute

    def _duration(self, rank: _Rank, action: Action) -> Seconds:
        key = rank.name, action.kind, action.operation, action.stage
        if key not in self.seconds:
            self.seconds[key] = self._whole(rank, action)
        return self.seconds[key] / action.parts

    def _whole(self, rank: _Rank, action: Action) -> Seconds:
        device = self.plan.fleet.spec(self.plan.placement[rank.rank])
        if action.kind == "optimizer":
            stages = self.plan.stages_of(rank.place)
            layers = sum(self.plan.stages[stage].layers for stage in stages)
            last = self.config.num_stages - 1 in stages
            return costs.optimizer_seconds(device, self.plan.workload, self.config, layers, 0 in stages, last)
        layers = self.plan.stages[action.stage].layers
        rings = costs.ring_windows(device, self.plan.workload, self.config, layers)
        if action.kind == "ring":
            return rings[action.operation]
        last = action.stage == self.config.num_stages - 1
        weight = costs.weight_seconds(device, self.plan.workload, self.config, layers, last)
        both = costs.compute_seconds(device, self.plan.workload, self.config, layers, action.stage == 0, last)
        seconds = {"F": both[0], "B": both[1] - weight, "W": weight}[action.kind]
        if action.kind == "W":
            return seconds
        apart = lowering.ring_exchanges(self.plan.workload, self.config, layers, action.kind == "B")
        return seconds - sum(rings[way] for way, _, _ in apart)

    def _compute(self, rank: _Rank, action: Action) -> Steps:
        start, left = self.env.now, self._duration(rank, action)
        while rank.outstanding:
            slow = 1.0 + max(rank.behind, default=0.0)
            before = self.env.now
            rank.changed = self.env.event()
            timer = self.env.timeout(left * slow)
            yield timer | rank.changed
            left -= (self.env.now - before) / slow
            if timer.processed:
                left = 0.0
                break
        if left > 0.0:
            yield self.env.timeout(left)
        rank.changed = None
        kind = action.kind if action.kind != "ring" else "F" if action.operation == "F" else "B"
        of = action if kind in COMPUTE else None
        rank.last = self._span(rank, "compute", str(action), kind, start, self.env.now, of, after=rank.last)

    def _is_measured(self, rank: _Rank, action: Action) -> bool:
        """Whether a collective is inside the measured seconds of its compute, on all devices of its group."""
        gathers_message = action.operation == "all_gather" and not self.config.sequence_parallel
        if action.group != "tp" or gathers_message:
            return False
        if rank.name not in self.measured:
            _, dp_cp, place = self.config.place(rank.rank)
            ranks = (self.config.rank(tp, dp_cp, place) for tp in range(self.config.tp))
            specs = {self.plan.fleet.spec(self.plan.placement[member]) for member in ranks}
            self.measured[rank.name] = all(compute.measured(s, self.plan.workload, self.config) is not None for s in specs)
        return self.measured[rank.name]

    # messages

    def _message(self, carrier: int, action: Action) -> _Message:
        key = carrier, action.operation, action.microbatch, action.stage
        if key not in self.messages:
            self.messages[key] = _Message(self.env.event())
        return self.messages[key]

    def _neighbour(self, rank: _Rank, place: int) -> int:
        tp, dp_cp, _ = self.config.place(rank.rank)
        return self.config.rank(tp, dp_cp, place)

    def _send(self, rank: _Rank, action: Action, after: int) -> Generator[simpy.Event, Any, int]:
        index = self.folding.of["message", rank.rank, self._neighbour(rank, action.peer)]
        carrier = self.folding.carriers[index]
        message = self._message(index, action)
        before, done = self.lanes.get(index), self.env.event()
        self.lanes[index] = done
        message.started = self.env.now
        if before is not None and not before.processed:
            after = yield before
        begun = self.env.now
        yield from self._carry(carrier, action)
        name, lane = f"send {action.operation}{action.microbatch}", "send" if action.operation == "F" else "return"
        last = self._span(rank, lane, name, "send", begun, self.env.now, action, "pp", after)
        message.arrived.succeed(last)
        done.succeed(last)
        return last

    def _receive(self, rank: _Rank, action: Action) -> Steps:
        source = self._neighbour(rank, action.peer)
        message = self._message(self.folding.of["message", source, rank.rank], action)
        start = self.env.now
        if not message.arrived.processed:
            rank.last = yield message.arrived
        begun = min(max(start, message.started), self.env.now)
        self._span(rank, "wait", f"wait {action.operation}{action.microbatch}", "bubble", start, begun, action, "pp")
        self._span(rank, "wait", str(action), "exposed", begun, self.env.now, action, "pp")

    def _carry(self, carrier: Carrier, action: Action) -> Steps:
        """Overhead and latencies first, then the bytes; one leg after the other."""
        route = carrier.route(action.nbytes)
        if route.overhead:
            yield self.env.timeout(action.count * route.overhead)
        for leg in route.legs:
            if leg.latency:
                yield self.env.timeout(action.count * leg.latency)
            self.events += 1
            yield self.network.start(leg.use, action.count * action.nbytes * leg.share)

    # collectives

    def _carrier(self, rank: _Rank, action: Action) -> int:
        config, (tp, dp_cp, place) = self.config, self.config.place(rank.rank)
        first = {
            "tp": config.rank(0, dp_cp, place),
            "cp": config.rank(tp, dp_cp - dp_cp % config.cp, place),
            "ep": config.rank(tp, dp_cp - dp_cp % config.ep, place),
            "dp": config.rank(tp, 0, place),
            "edp": config.rank(tp, dp_cp % config.ep, place),
            "embedding": config.rank(tp, dp_cp, 0),
        }[action.group]
        key: Key = (action.group, first, "send_recv" if action.kind == "ring" else action.operation)
        return self.folding.of[key]

    def _meet(self, rank: _Rank, action: Action) -> _Meeting:
        """Come to the next collective of a carrier; the last of its ranks to come starts it."""
        index = self._carrier(rank, action)
        turn = rank.meetings.get(index, 0)
        rank.meetings[index] = turn + 1
        meeting = self.meetings.get((index, turn))
        if meeting is None:
            meeting = self.meetings[index, turn] = _Meeting(self.env.event(), self.env.event())
        meeting.arrived += 1
        if meeting.arrived == len(self.members[index]):
            self.env.process(self._collective(index, turn, meeting, action, rank, rank.last))
        return meeting

    def _collective(self, index: int, turn: int, meeting: _Meeting, action: Action, latest: _Rank, after: int) -> Steps:
        carrier, lane = self.folding.carriers[index], self.streams.get(index, index)
        before, done = self.lanes.get(lane), self.env.event()
        self.lanes[lane] = done
        meeting.started = self.env.now
        if before is not None and not before.processed:
            after = yield before
        begun = self.env.now
        meeting.begun.succeed()
        behind = action.kind in ("start", "ring")
        if behind:
            self._overlap(index, 1, carrier.interference)
        yield from self._carry(carrier, action)
        if behind:
            self._overlap(index, -1, carrier.interference)
        last = after
        for rank in self.members[index]:
            lane_name = "dp" if action.group == "embedding" else action.group
            of, group = action if action.group in ("tp", "cp", "ep") else None, action.group
            span = self._span(rank, lane_name, str(action), "collective", begun, self.env.now, of, group, after)
            last = span if rank is latest else last
        meeting.done.succeed(last)
        done.succeed(last)
        del self.meetings[index, turn]

    def _overlap(self, index: int, change: int, interference: float) -> None:
        """A collective of these ranks goes onto the network behind their compute, or leaves it."""
        for rank in self.members[index]:
            if change > 0:
                rank.behind.append(interference)
            else:
                rank.behind.remove(interference)
                rank.outstanding -= 1
            if rank.changed is not None and not rank.changed.triggered:
                rank.changed.succeed()

    def _await(self, rank: _Rank, action: Action, meeting: _Meeting, lane: str) -> Steps:
        start = self.env.now
        if not meeting.done.processed:
            rank.last = yield meeting.done
        begun = min(max(start, meeting.started), self.env.now)
        self._span(rank, "wait", f"wait {action}", "bubble", start, begun, None, action.group)
        self._span(rank, "wait", str(action), "exposed", begun, self.env.now, None, action.group)
