"""The step of a plan, simulated without a timeline: quick enough for thousands of plans that differ in their layers alone.

The same event simulation as `sim.engine.engine`, of the same programs, durations, routes and fair shares, and so with the same
result to rounding. It keeps no spans, extrapolates no steady state, and computes the fair rates of each set of flows that share
links once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Any

from sim.engine.abandonment import ROUNDING
from sim.engine.backward_walks import Walk, Walks, prepared
from sim.engine.compiled import ARRIVE, COMPUTE, PAUSE, RECEIVE, SEND, SENT, Compiler, Leg, Program
from sim.engine.fair_shares import FairShares
from sim.units import Seconds

RANK, LATENCY, FLOW = range(3)
"""What ends at an event: compute of a rank, the latency of a transfer's leg, a flow."""


class StepTimes:
    """Simulates steps of plans whose programs one compiler compiled; `events` counts those of all simulations."""

    def __init__(self, compiler: Compiler):
        self.compiler, self.carriers, self.events = compiler, compiler.folding.carriers, 0
        self.shares = FairShares(compiler.uses, compiler.folding.capacities)
        self._walks: dict[int, tuple[Program, list[Walk]]] = {}  # by id; the program is kept, so that no other one has its id

    def seconds(self, programs: Sequence[Program], limit: Seconds = math.inf) -> Seconds:
        """Seconds of the step of some programs, one for each class of ranks; infinite where it is above `limit`."""
        self.shares.learn()
        run = _Run(self, programs, limit)
        seconds = run.seconds()
        self.events += run.event
        return seconds

    def left(self, programs: Sequence[Program]) -> list[list[Seconds]]:
        """For each operation of each program, least seconds from its begin to the end of the step, on an idle network.

        As `sim.engine.remaining_time`, without the loads of links."""
        return Walks([self._walk(program) for program in programs]).left()

    def _walk(self, program: Program) -> list[Walk]:
        """What a backward walk does at each operation of a program."""
        if id(program) not in self._walks:
            self._walks[id(program)] = program, prepared(program, self.compiler.alone)
        return self._walks[id(program)][1]


class _Transfer:
    """A message or a collective: its legs, the ranks that wait for it, and the transfer behind it in its lane."""

    __slots__ = ("arrivals", "behind", "beside", "carrier", "ended", "leg", "legs", "waiting")

    def __init__(self, carrier: int = -1, legs: tuple[Leg, ...] = (), beside: bool = False):
        self.carrier, self.legs, self.beside = carrier, legs, beside
        self.leg = self.arrivals = 0
        self.ended = False
        self.behind: _Transfer | None = None
        self.waiting: list[int] = []


class _Run:
    """One simulation. `computing`: [seconds left, since when, slowdown, event] of a rank that computes, with slowdown 0 where
    nothing slows it down; `active`: flow -> [bytes left, since when, rate, event, transfer]; `changed`: bits of the flows whose
    rates may change now."""

    def __init__(self, steps: StepTimes, programs: Sequence[Program], limit: Seconds):
        self.steps, self.programs, self.limit = steps, programs, limit * (1 + ROUNDING)
        self.left = steps.left(programs) if limit < math.inf else []
        self.now, self.event, self.is_over = 0.0, 0, False
        self.next: list[tuple[Seconds, int, int, Any]] = []
        self.at, self.ends = [0] * len(programs), [0.0] * len(programs)
        self.slows: list[list[float]] = [[] for _ in programs]
        self.computing: list[list[Any]] = [[] for _ in programs]
        self.awaited: list[dict[Any, list[_Transfer]]] = [{} for _ in programs]
        self.arrived: list[dict[int, int]] = [{} for _ in programs]
        self.transfers: dict[Any, _Transfer] = {}
        self.lanes: dict[int, _Transfer] = {}
        self.active: dict[int, list[Any]] = {}
        self.mask = self.changed = 0

    def seconds(self) -> Seconds:
        """Run to the end of the step, or until it is proved to be above the limit."""
        for rank in range(len(self.programs)):
            self._advance(rank)
        while not self.is_over:
            if self.changed and not (self.next and self.next[0][0] <= self.now):
                self._share()
            if not self.next:
                break
            self.now, event, kind, what = heappop(self.next)
            if kind == LATENCY:
                self._begin_flow(what)
            elif kind == FLOW:
                if what in self.active and self.active[what][3] == event:
                    self._end_flow(what)
            elif self.computing[what] and self.computing[what][3] == event:
                self.computing[what] = []
                self._advance(what)
        if self.is_over:
            return math.inf
        assert all(at == len(program) for at, program in zip(self.at, self.programs, strict=True)), "a rank waits for ever"
        return max(self.ends)

    def _push(self, time: Seconds, kind: int, what: Any) -> int:
        self.event += 1
        heappush(self.next, (time, self.event, kind, what))
        return self.event

    def _advance(self, rank: int) -> None:
        """Run operations of a rank until it computes or waits."""
        program, awaited = self.programs[rank], self.awaited[rank]
        for index in range(self.at[rank], len(program)):
            one = program[index]
            kind = one[0]
            if kind <= PAUSE:
                self._compute(rank, index, one[1], kind == COMPUTE)
                self.at[rank] = index + 1
                return
            if kind == SEND:
                awaited[SENT] = [self._send(key, lane, legs) for key, lane, legs in one[1]]
            elif kind == ARRIVE:
                awaited[one[3]] = [self._arrive(rank, each, one[2]) for each in one[1]]
            else:
                for transfer in map(self._transfer, one[1]) if kind == RECEIVE else awaited[one[1]]:
                    if not transfer.ended:  # the rank comes back to this operation
                        transfer.waiting.append(rank)
                        self.at[rank] = index
                        return
                for key in one[1] if kind == RECEIVE else ():
                    del self.transfers[key]
        self.at[rank], self.ends[rank] = len(program), self.now

    def _compute(self, rank: int, index: int, seconds: Seconds, can_be_slowed: bool) -> None:
        if self.left and self.now + self.left[rank][index] > self.limit:
            self.is_over = True
        slow = 1.0 + max(self.slows[rank], default=0.0) if can_be_slowed else 0.0
        event = self._push(self.now + seconds * (slow or 1.0), RANK, rank)
        self.computing[rank] = [seconds, self.now, slow, event]

    def _transfer(self, key: Any) -> _Transfer:
        """The transfer of a key, made for the first rank that arrives at it."""
        transfer = self.transfers.get(key)
        if transfer is None:
            transfer = self.transfers[key] = _Transfer()
        return transfer

    def _send(self, key: Any, lane: int, legs: tuple[Leg, ...]) -> _Transfer:
        transfer = self._transfer(key)
        transfer.carrier, transfer.legs = lane, legs
        self._queue(transfer, lane)
        return transfer

    def _arrive(self, rank: int, what: tuple[int, int, tuple[Leg, ...]], beside: bool) -> _Transfer:
        """Arrive at the next collective of a carrier, which begins with the last class of ranks."""
        carrier, lane, legs = what
        members = self.steps.carriers[carrier].members
        number = self.arrived[rank].get(carrier, 0)
        self.arrived[rank][carrier] = number + 1
        transfer = self._transfer((carrier, number))
        transfer.carrier, transfer.legs, transfer.beside = carrier, legs, beside
        transfer.arrivals += 1
        if transfer.arrivals == len(members):
            del self.transfers[carrier, number]
            self._queue(transfer, lane)
        return transfer

    def _queue(self, transfer: _Transfer, lane: int) -> None:
        """Put a transfer at the end of its lane."""
        previous = self.lanes.get(lane)
        self.lanes[lane] = transfer
        if previous is None or previous.ended:
            self._begin(transfer)
        else:
            previous.behind = transfer

    def _begin(self, transfer: _Transfer) -> None:
        if transfer.beside:
            carrier = self.steps.carriers[transfer.carrier]
            for rank in carrier.members:
                self.slows[rank].append(carrier.interference)
                self._change(rank)
        self._begin_leg(transfer)

    def _begin_leg(self, transfer: _Transfer) -> None:
        delay = transfer.legs[transfer.leg][0]
        if delay:
            self._push(self.now + delay, LATENCY, transfer)
        else:
            self._begin_flow(transfer)

    def _begin_flow(self, transfer: _Transfer) -> None:
        _, flow, nbytes = transfer.legs[transfer.leg]
        self.active[flow] = [nbytes, self.now, 0.0, 0, transfer]
        self.mask |= 1 << flow
        self.changed |= self.steps.shares.beside[flow]

    def _share(self) -> None:
        """Give flows their fair rates, once nothing else happens at this time: those beside flows that have begun or ended."""
        now, rates, self.changed = self.now, self.steps.shares.rates(self.mask & self.changed), 0
        for flow, state in self.active.items():
            rate = rates.get(flow)
            if rate is not None and rate != state[2]:
                state[0] = max(state[0] - state[2] * (now - state[1]), 0.0)
                state[1], state[2] = now, rate
                state[3] = self._push(now + state[0] / rate, FLOW, flow)

    def _end_flow(self, flow: int) -> None:
        transfer = self.active.pop(flow)[4]
        self.mask ^= 1 << flow
        self.changed |= self.steps.shares.beside[flow]
        transfer.leg += 1
        if transfer.leg < len(transfer.legs):
            self._begin_leg(transfer)
        else:
            self._end(transfer)

    def _end(self, transfer: _Transfer) -> None:
        transfer.ended = True
        if transfer.beside:
            carrier = self.steps.carriers[transfer.carrier]
            for rank in carrier.members:
                self.slows[rank].remove(carrier.interference)
                self._change(rank)
        if transfer.behind is not None:
            self._begin(transfer.behind)
        for rank in transfer.waiting:
            self._advance(rank)

    def _change(self, rank: int) -> None:
        """Let a computing rank take notice of its slowdowns."""
        state = self.computing[rank]
        slow = 1.0 + max(self.slows[rank], default=0.0)
        if state and state[2] and slow != state[2]:
            left = max(state[0] - (self.now - state[1]) / state[2], 0.0)
            self.computing[rank] = [left, self.now, slow, self._push(self.now + left * slow, RANK, rank)]
