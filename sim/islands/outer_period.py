"""Discrete-event simulation of outer periods: `simulate(plan, timing)` returns the spans of all islands.

Each island is one SimPy process. It runs its inner steps, each as long as the simulated step of its plan; where an exchange
begins, it arrives there and goes on, or waits for the result of one that is due. An exchange begins when the last island has
arrived and the one before it has ended. It takes its latency, then its bytes as a flow over the links of its rings
(`sim.islands.exchange`), then the outer update. While it is on the network, inner steps take longer where both use the same
NICs (`Timing.beside`).

Inner steps without an event between them are one span: folded, because they are alike. Periods are simulated until their
seconds no longer change: the steady state.

An island may leave. The others notice after `TIMEOUT`, begin an exchange under way anew without it, and go on."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import simpy

from sim.islands.exchange import ExchangeCost
from sim.network.paths import Capacities, LinkName
from sim.network.sharing import Flow, Network
from sim.plan.islands import IslandsPlan
from sim.sync import Exchange
from sim.units import Seconds

Steps: TypeAlias = Generator[simpy.Event, Any, None]
MOST_PERIODS = 8
"""Number of periods that are simulated at most to find the steady state. The second is like all later ones, except where an
exchange is slower than a period, which may take some more. A guess."""
SAME = 1e-9
"""Relative difference of two periods that rounding explains. A guess."""
TIMEOUT: Seconds = 10.0
"""Seconds after which the others notice that an island has left: the heartbeat's timeout of prime
(ZERO_BAND_EDM_HEARTBEAT_TIMEOUT_SECONDS in src/zeroband/comms.py)."""


NETWORK = -1
"""Number of the network between the islands, in place of an island, in spans."""


class OuterSpan(NamedTuple):
    """What an island does from `start` to `end`: "inner steps" (`steps` of them), "wait" for slower islands, or "exchange",
    where it waits for one. Island `NETWORK` is the network between islands, on which an "exchange" is under way."""

    island: int
    kind: str
    start: Seconds
    end: Seconds
    steps: int = 0


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds that a simulation needs.

    inner     seconds of an inner step of each island
    beside    the same while an exchange is on the network
    cost      cost of an exchange of all islands
    without   island that leaves -> cost of an exchange of the others
    weak      share of its rate that a link keeps, where it is not 1
    outages   link -> intervals in which it carries nothing, as (from, until)"""

    inner: tuple[Seconds, ...]
    beside: tuple[Seconds, ...]
    cost: ExchangeCost
    without: Mapping[int, ExchangeCost] = field(default_factory=dict)
    weak: Mapping[LinkName, float] = field(default_factory=dict)
    outages: Mapping[LinkName, tuple[tuple[Seconds, Seconds], ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OuterTimeline:
    """Simulated outer periods: ends[island][k] is the end of period k of an island; a shorter row is that of one that left."""

    ends: tuple[tuple[Seconds, ...], ...]
    spans: tuple[OuterSpan, ...]
    events: int

    def period_s(self, island: int) -> Seconds:
        """Seconds of the last simulated period of an island."""
        own = (0.0, *self.ends[island][: min(map(len, self.ends)) or None])
        return own[-1] - own[-2]


def simulate(
    plan: IslandsPlan, timing: Timing, leaves: tuple[int, Seconds] | None = None, periods: int = MOST_PERIODS
) -> OuterTimeline:
    """Simulate outer periods from the first one, until they no longer change or `periods` of them have ended.

    leaves: (island, seconds at which it leaves)."""
    return _Simulation(plan, timing, leaves, periods).run()


class _Running:
    """An exchange: the islands that have arrived, and the event of its end."""

    def __init__(self, env: simpy.Environment, exchange: Exchange, before: _Running | None):
        self.exchange, self.before = exchange, before
        self.arrived: set[int] = set()
        self.all_arrived, self.done = env.event(), env.event()
        self.process: simpy.Process | None = None


class _Simulation:
    """The clock, the islands and the exchange under way."""

    def __init__(self, plan: IslandsPlan, timing: Timing, leaves: tuple[int, Seconds] | None, periods: int):
        self.sync, self.timing, self.leaves, self.most = plan.sync, timing, leaves, periods
        self.env = simpy.Environment()
        self.cost = timing.cost
        names = dict.fromkeys(link for cost in (timing.cost, *timing.without.values()) for link, _ in cost.use)
        self.links = {link: number for number, link in enumerate(names)}
        rate = Capacities(plan.fleet)
        self.network = Network(self.env, [rate(link) * timing.weak.get(link, 1.0) for link in names])
        self.present = set(range(len(plan.islands)))
        self.exchanges: dict[tuple[int, int], _Running] = {}
        self.last: _Running | None = None
        self.on_network, self.changed = False, self.env.event()
        self.spans: list[OuterSpan] = []
        self.ends: list[list[Seconds]] = [[] for _ in plan.islands]
        self.islands: list[simpy.Process] = []

    def run(self) -> OuterTimeline:
        """Run until the steady state."""
        self.islands = [self.env.process(self._island(index)) for index in sorted(self.present)]
        for link, times in self.timing.outages.items():
            if link in self.links:
                self.env.process(self._outages(self.links[link], times))
        if self.leaves is not None:
            self.env.process(self._leave(*self.leaves))
        end, events = self.env.all_of(self.islands), 0
        while not end.processed and not self._is_steady():
            self.env.step()
            events += 1
        return OuterTimeline(tuple(map(tuple, self.ends)), tuple(self.spans), events)

    def _island(self, index: int) -> Steps:
        """The process of an island: period after period."""
        try:
            for period in range(self.most):
                yield from self._period(index, period)
                self.ends[index].append(self.env.now)
        except simpy.Interrupt:
            return

    def _is_steady(self) -> bool:
        """Whether all islands have ended three periods, the last two of which took equally long; not where links go down or an
        island leaves."""
        ended = min(map(len, self.ends))
        if ended < 3 or self.timing.outages or self.leaves is not None:
            return False
        rows = [row[ended - 3 : ended] for row in self.ends]
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
        if running.arrived >= self.present and not running.all_arrived.triggered:
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
        while True:
            try:
                yield from self._transfer(running.exchange.share)
                break
            except simpy.Interrupt:
                yield self.env.timeout(TIMEOUT)
        running.done.succeed()

    def _transfer(self, share: float) -> Steps:
        """Latency, bytes and outer update of an exchange of a share of the parameters."""
        cost, began = self.cost, self.env.now
        if len(self.present) > 1 and cost.payload:
            flow: Flow | None = None
            self._set_on_network(True)
            try:
                yield self.env.timeout(share * cost.latency)
                flow = self.network.start(tuple((self.links[link], w) for link, w in cost.use), share * cost.payload)
                yield flow
            except simpy.Interrupt:
                if flow is not None and not flow.triggered:
                    self.network.cancel(flow)
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

    def _leave(self, index: int, at: Seconds) -> Steps:
        """An island leaves."""
        yield self.env.timeout(at)
        if not self.islands[index].is_alive:
            return
        self.present.discard(index)
        self.cost = self.timing.without[index]
        self.islands[index].interrupt()
        for running in self.exchanges.values():
            if running.all_arrived.triggered and not running.done.triggered and running.process is not None:
                began = running.before is None or running.before.done.processed
                if began and running.all_arrived.processed:
                    running.process.interrupt()
            elif running.arrived >= self.present and not running.all_arrived.triggered:
                self.env.process(self._notice(running))

    def _notice(self, running: _Running) -> Steps:
        """The others notice that they need not wait for an island that has left."""
        yield self.env.timeout(TIMEOUT)
        if not running.all_arrived.triggered:
            running.all_arrived.succeed()

    def _outages(self, link: int, times: tuple[tuple[Seconds, Seconds], ...]) -> Steps:
        """Outages of a link."""
        rate = self.network.capacities[link]
        for begin, until in times:
            yield self.env.timeout(max(begin - self.env.now, 0.0))
            self.network.set_capacity(link, 0.0)
            yield self.env.timeout(until - begin)
            self.network.set_capacity(link, rate)

    def _log(self, index: int, kind: str, since: Seconds, steps: int = 0) -> None:
        if self.env.now > since:
            self.spans.append(OuterSpan(index, kind, since, self.env.now, steps))
