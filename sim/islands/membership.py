"""Islands that leave and come back during a simulation of outer periods, as in INTELLECT-1's elastic device mesh.

An island that leaves is dropped: its inner steps since the last exchange are lost, and the others go on. They notice after
`TIMEOUT` where they wait for it or exchange with it, and rebuild the ring before their next exchange. An island that is back
waits for the next start of an outer period; there all others wait while the ring is rebuilt and one of them sends it the live
checkpoint (the blocking kind, which INTELLECT-1 chose; arXiv 2412.01152, sections 2.4.2 and 2.4.3). If nobody is left, the
first one that is back goes on from its own checkpoint."""

from __future__ import annotations

import bisect
import math
from collections.abc import Generator
from typing import Any, Protocol, TypeAlias

import simpy

from sim.islands.exchange import ExchangeCost
from sim.islands.links import IslandLinks
from sim.islands.outer_timeline import Absence, Timing
from sim.network.sharing import Flow
from sim.units import Seconds

Steps: TypeAlias = Generator[simpy.Event, Any, None]
TIMEOUT: Seconds = 10.0
"""Seconds after which the others notice that an island has left: the default of prime's heartbeat
(ZERO_BAND_EDM_HEARTBEAT_TIMEOUT_SECONDS in src/zeroband/comms.py). The report says 6 (arXiv 2412.01152, section 2.4.3)."""


class World(Protocol):
    """What a membership needs of the simulation that it belongs to."""

    env: simpy.Environment
    links: IslandLinks

    def start(self, island: int, period: int) -> None:
        """Start the process of an island at a period."""
        ...

    def stop(self, island: int) -> None:
        """Stop the process of an island, and the exchanges that it takes part in."""
        ...


class _Admission:
    """The start of a period at which islands join: those that have arrived there, and the event of its end."""

    def __init__(self, env: simpy.Environment, period: int):
        self.period, self.arrived = period, set[int]()
        self.all_arrived, self.done = env.event(), env.event()
        self.process: simpy.Process | None = None


class Membership:
    """The islands present, those that wait to join, and the cost of an exchange among the present ones."""

    def __init__(self, world: World, timing: Timing, absences: tuple[Absence, ...], islands: int):
        self.world, self.env, self.mesh = world, world.env, timing.mesh
        self.present = set(range(islands)) - {absence.island for absence in absences if absence.left <= 0}
        self.absences, self.waiting = absences, list[int]()
        self.times = sorted(time for absence in absences for time in absence[1:] if 0 < time < math.inf)
        self.coming = sum(absence.back < math.inf for absence in absences)
        self.cost = timing.cost if len(self.present) == islands else self._exchange()
        self.must_rebuild, self.changed_at = False, 0.0
        self.periods: dict[int, int] = {}
        self.latest = -1
        self.admission: _Admission | None = None

    def run(self) -> None:
        """Start the islands present, and the processes of absences."""
        for island in sorted(self.present):
            self.world.start(island, 0)
        for absence in self.absences:
            self.env.process(self._absent(absence))

    @property
    def next_change(self) -> Seconds:
        """When an island leaves or is back next."""
        index = bisect.bisect_left(self.times, self.env.now)
        return self.times[index] if index < len(self.times) else math.inf

    def begin(self, island: int, period: int) -> Steps:
        """Wait at the start of a period for islands that join there."""
        self.periods[island], self.latest = period, max(self.latest, period)
        admission = self.admission
        if admission is not None and admission.period == period:
            admission.arrived.add(island)
            if admission.arrived >= self.present and not admission.all_arrived.triggered:
                admission.all_arrived.succeed()
            yield admission.done

    def rebuild(self) -> Steps:
        """Rebuild the ring if the islands have changed since the last exchange."""
        if self.must_rebuild and self.mesh is not None:
            yield self.env.timeout(self.mesh.rebuild_s(len(self.present)))
            self.must_rebuild = False

    def _exchange(self) -> ExchangeCost:
        assert self.mesh is not None
        return self.mesh.exchange(frozenset(self.present))

    def _absent(self, absence: Absence) -> Steps:
        """An island leaves and is back."""
        if absence.left > 0:
            yield self.env.timeout(absence.left)
            self._leave(absence.island)
        if absence.back < math.inf:
            yield self.env.timeout(absence.back - self.env.now)
            self.coming -= 1
            self.waiting.append(absence.island)
            self._plan_admission()

    def _leave(self, island: int) -> None:
        if island in self.waiting:
            self.waiting.remove(island)
            return
        self.present.discard(island)
        self.periods.pop(island, None)
        self.must_rebuild, self.changed_at = True, self.env.now
        if self.present:
            self.cost = self._exchange()
        self.world.stop(island)
        admission = self.admission
        if admission is None:
            return
        if admission.all_arrived.processed:
            if admission.process is not None and not admission.done.triggered:
                admission.process.interrupt()
        elif admission.arrived >= self.present and not admission.all_arrived.triggered:
            self.env.process(self.notice(admission.all_arrived))

    def notice(self, all_arrived: simpy.Event) -> Steps:
        """The others notice that they need not wait for an island that has left."""
        yield self.env.timeout(TIMEOUT)
        if not all_arrived.triggered:
            all_arrived.succeed()

    def _plan_admission(self) -> None:
        """Let those that wait join at the first period that no island has begun."""
        if self.admission is not None:
            return
        if not self.present:
            self._join(self.latest + 1, tuple(self.waiting))
            return
        admission = self.admission = _Admission(self.env, max(self.periods.values()) + 1)
        admission.process = self.env.process(self._admit(admission))

    def _admit(self, admission: _Admission) -> Steps:
        """Rebuild the ring and send live checkpoints, anew where an island leaves meanwhile."""
        yield admission.all_arrived
        notice = 0.0
        while True:
            flows, joiners = list[Flow](), tuple(self.waiting)
            try:
                yield self.env.timeout(notice)
                yield from self._send(flows, joiners)
                break
            except simpy.Interrupt:
                for flow in flows:
                    self.world.links.cancel(flow)
                notice = TIMEOUT
        self.admission = None
        self._join(admission.period, joiners)
        admission.done.succeed()
        if self.waiting:
            self._plan_admission()

    def _send(self, flows: list[Flow], joiners: tuple[int, ...]) -> Steps:
        """Rebuild the ring, then send a live checkpoint to each joiner; the transfers are added to `flows`."""
        if not joiners or not self.present or self.mesh is None:
            return
        yield self.env.timeout(self.mesh.rebuild_s(len(self.present) + len(joiners)))
        sent = [self.mesh.checkpoint(joiner, frozenset(self.present)) for joiner in joiners]
        yield self.env.timeout(max(one.latency for one in sent))
        flows += [self.world.links.send(one.use, one.payload) for one in sent]
        yield self.env.all_of(flows)

    def _join(self, period: int, joiners: tuple[int, ...]) -> None:
        """Those of the joiners that have not left meanwhile begin a period."""
        joining = [island for island in joiners if island in self.waiting]
        self.waiting = [island for island in self.waiting if island not in joining]
        self.present.update(joining)
        self.changed_at, self.must_rebuild = self.env.now, False
        if self.present:
            self.cost = self._exchange()
        for island in joining:
            self.world.start(island, period)
