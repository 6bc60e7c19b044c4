"""Discrete-event simulation of outer periods: `simulate(plan, timing)` returns the spans of all islands.

Each island is one SimPy process. It runs its inner steps, each as long as the simulated step of its plan; where an exchange
begins, it arrives there and goes on, or waits for the result of one that is due. An exchange begins when the last island has
arrived and the one before it has ended. It takes its latency, then its bytes as a flow over the links of its rings
(`sim.islands.exchange`), then the outer update. While it is on the network, inner steps take longer where both use the same
NICs (`Timing.beside`).

Inner steps without an event between them are one span: folded, because they are alike. Periods are simulated until their
seconds no longer change: the steady state.

An island may leave and come back (`sim.islands.membership`). An exchange under way begins anew without one that leaves.

Where the islands present change, and islands wait for their exchanges, whole periods between two changes are folded: they are
as long as the one before, so that the islands pass them at once, without spans."""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import Any, TypeAlias

import simpy

from sim.islands.links import IslandLinks
from sim.islands.membership import TIMEOUT, Membership
from sim.islands.outer_timeline import NETWORK, Absence, OuterSpan, OuterTimeline, Timing
from sim.network.paths import Capacities
from sim.network.sharing import Flow
from sim.plan.islands import IslandsPlan
from sim.sync import Exchange
from sim.units import Seconds

Steps: TypeAlias = Generator[simpy.Event, Any, None]
MOST_PERIODS = 8
"""Number of periods that are simulated at most to find the steady state. The second is like all later ones, except where an
exchange is slower than a period, which may take some more. A guess."""
MANY = 10**9
"""More periods than any simulation has: the limit of one that ends at a time."""
SAME = 1e-9
"""Relative difference of two periods that rounding explains. A guess."""


def simulate(
    plan: IslandsPlan,
    timing: Timing,
    absences: tuple[Absence, ...] = (),
    periods: int = MOST_PERIODS,
    until: Seconds = math.inf,
) -> OuterTimeline:
    """Simulate outer periods from the first one, until they no longer change, `periods` of them have ended, or `until`.

    absences: when islands leave and are back; `timing` must then have a mesh."""
    return _Simulation(plan, timing, absences, (periods, until)).run()


class _Running:
    """An exchange: the islands that have arrived, and the event of its end."""

    def __init__(self, env: simpy.Environment, exchange: Exchange, before: _Running | None):
        self.exchange, self.before = exchange, before
        self.arrived: set[int] = set()
        self.all_arrived, self.done = env.event(), env.event()
        self.process: simpy.Process | None = None


class _Simulation:
    """The clock, the islands and the exchange under way. `limits`: the number of periods, and of seconds."""

    def __init__(self, plan: IslandsPlan, timing: Timing, absences: tuple[Absence, ...], limits: tuple[int, Seconds]):
        self.sync, self.timing, (self.most, self.until) = plan.sync, timing, limits
        self.env = simpy.Environment()
        self.links = IslandLinks(self.env, Capacities(plan.fleet), timing)
        self.membership = Membership(self, timing, absences, len(plan.islands))
        self.varies = any(absence.left > 0 or absence.back < math.inf for absence in absences)
        self.waits_at_end = any(e.start == plan.sync.inner_steps and not e.overlap for e in plan.sync.exchanges)
        self.exchanges: dict[tuple[int, int], _Running] = {}
        self.last: _Running | None = None
        self.on_network, self.changed = False, self.env.event()
        self.spans: list[OuterSpan] = []
        self.ends: list[list[Seconds]] = [[] for _ in plan.islands]
        self.completed = [0] * len(plan.islands)
        self.islands: dict[int, simpy.Process] = {}
        self.alive = 0

    def run(self) -> OuterTimeline:
        """Run until the steady state, or the limits."""
        self.membership.run()
        events = 0
        while self._goes_on() and self.env.peek() <= self.until:
            self.env.step()
            events += 1
        return OuterTimeline(tuple(map(tuple, self.ends)), tuple(self.spans), events, tuple(self.completed))

    def start(self, island: int, period: int) -> None:
        """Start the process of an island at a period."""
        self.alive += 1
        self.islands[island] = self.env.process(self._island(island, period))

    def stop(self, island: int) -> None:
        """Stop the process of an island, and the exchanges that it takes part in."""
        if not self.islands[island].is_alive:
            return
        self.islands[island].interrupt()
        for running in self.exchanges.values():
            if running.all_arrived.triggered and not running.done.triggered and running.process is not None:
                began = running.before is None or running.before.done.processed
                if began and running.all_arrived.processed:
                    running.process.interrupt()
            elif running.arrived >= self.membership.present and not running.all_arrived.triggered:
                self.env.process(self.membership.notice(running.all_arrived))

    def _goes_on(self) -> bool:
        """Whether islands have periods to run, now or when they are back, and these still change."""
        ended = not self.alive and (self.membership.present or not self.membership.coming)
        return not ended and not self._is_steady()

    def _island(self, index: int, period: int) -> Steps:
        """The process of an island: period after period."""
        try:
            while period < self.most:
                since = self.env.now
                yield from self.membership.begin(index, period)
                self._log(index, "join", since)
                if alike := self._alike(index, self.most - period):
                    length, began = self.ends[index][-1] - self.ends[index][-2], self.env.now
                    yield self.env.timeout(alike * length)
                    last = range(max(alike - MOST_PERIODS, 0), alike)
                    self.ends[index] += [began + (number + 1) * length for number in last]
                    self.completed[index] += alike
                    period += alike
                    continue
                yield from self._period(index, period)
                self.ends[index].append(self.env.now)
                self.completed[index] += 1
                period += 1
                for number in range(len(self.sync.exchanges)):
                    self.exchanges.pop((period - 3, number), None)  # all islands have its result
        except simpy.Interrupt:
            return
        finally:
            self.alive -= 1

    def _alike(self, index: int, most: int) -> int:
        """Number of periods that pass like the last one before an island leaves or comes back; all islands know the same."""
        row, membership = self.ends[index], self.membership
        if not (self.varies and self.waits_at_end) or self.timing.outages or len(row) < 3 or row[-3] < membership.changed_at:
            return 0
        length = row[-1] - row[-2]
        if membership.admission is not None or not math.isclose(length, row[-2] - row[-3], rel_tol=SAME):
            return 0
        seconds = min(membership.next_change, self.until) - self.env.now
        return max(min(int(min(seconds / length, most + 1)) - 1, most), 0)

    def _is_steady(self) -> bool:
        """Whether all islands have ended three periods, the last two of which took equally long; not where links go down or
        islands leave or come back."""
        if self.timing.outages or self.varies or self.until < math.inf:
            return False
        present = self.membership.present
        ended = min((len(self.ends[index]) for index in present), default=0)
        if ended < 3:
            return False
        rows = [self.ends[index][ended - 3 : ended] for index in present]
        return all(math.isclose(row[2] - row[1], row[1] - row[0], rel_tol=SAME) for row in rows)

    def _period(self, index: int, period: int) -> Steps:
        """The inner steps of a period, and the exchanges that begin or are due between them."""
        inner, exchanges, done = self.sync.inner_steps, self.sync.exchanges, 0
        ends = [e.start + e.overlap for e in exchanges]  # inner steps after which results are due, from the period of the start
        for step in sorted({inner} | {e.start for e in exchanges} | {(end - 1) % inner + 1 for end in ends}):
            yield from self._compute(index, step - done)
            done = step
            for number, end in enumerate(ends):
                if exchanges[number].overlap and (end - 1) % inner + 1 == step:
                    yield from self._await(index, self.exchanges.get((period - (end - 1) // inner, number)))
            for number, e in enumerate(exchanges):
                if e.start == step:
                    running = self._arrive(index, (period, number))
                    if not e.overlap:
                        yield from self._await(index, running)

    def _compute(self, index: int, steps: int) -> Steps:
        """Inner steps, slower while an exchange is on the network."""
        since, left = self.env.now, float(steps)
        while left > 0:
            each = (self.timing.beside if self.on_network else self.timing.inner)[index]
            began = self.env.now
            until = self.env.timeout(left * each)
            yield until | self.changed
            left = 0.0 if until.processed else left - (self.env.now - began) / each
            left = left if left * each > SAME * each else 0.0
        self._log(index, "inner steps", since, steps)

    def _arrive(self, index: int, key: tuple[int, int]) -> _Running:
        """Arrive at an exchange, which its first island makes."""
        if key not in self.exchanges:
            running = self.exchanges[key] = _Running(self.env, self.sync.exchanges[key[1]], self.last)
            running.process = self.env.process(self._exchange(running))
            self.last = running
        running = self.exchanges[key]
        running.arrived.add(index)
        if running.arrived >= self.membership.present and not running.all_arrived.triggered:
            running.all_arrived.succeed()
        return running

    def _await(self, index: int, running: _Running | None) -> Steps:
        """Wait for the end of an exchange; the first period has none before it."""
        if running is None or running.done.processed:
            return
        since = self.env.now
        if not running.all_arrived.processed:
            yield running.all_arrived
            self._log(index, "wait", since)
            since = self.env.now
        if not running.done.processed:
            yield running.done
            self._log(index, "exchange", since)

    def _exchange(self, running: _Running) -> Steps:
        """Run an exchange, anew after one of its islands has left."""
        yield running.all_arrived
        if running.before is not None and not running.before.done.processed:
            yield running.before.done
        notice = 0.0
        while True:
            try:
                yield self.env.timeout(notice)
                yield from self._transfer(running.exchange.share)
                break
            except simpy.Interrupt:
                notice = TIMEOUT
        running.before = None
        running.done.succeed()

    def _transfer(self, share: float) -> Steps:
        """Latency, bytes and outer update of an exchange of a share of the parameters."""
        yield from self.membership.rebuild()
        cost, began = self.membership.cost, self.env.now
        if len(self.membership.present) > 1 and cost.payload:
            flow: Flow | None = None
            self._set_on_network(True)
            try:
                yield self.env.timeout(share * cost.latency)
                flow = self.links.send(cost.use, share * cost.payload)
                yield flow
            except simpy.Interrupt:
                if flow is not None:
                    self.links.cancel(flow)
                raise
            finally:
                self._set_on_network(False)
                self._log(NETWORK, "exchange", began)
            yield self.env.timeout(max(began + share * cost.handling - self.env.now, 0.0))
        yield self.env.timeout(share * cost.update)

    def _set_on_network(self, value: bool) -> None:
        """Say whether an exchange is on the network; inner steps go on at another speed."""
        self.on_network, changed = value, self.changed
        self.changed = self.env.event()
        changed.succeed()

    def _log(self, index: int, kind: str, since: Seconds, steps: int = 0) -> None:
        if self.env.now > since:
            self.spans.append(OuterSpan(index, kind, since, self.env.now, steps))
