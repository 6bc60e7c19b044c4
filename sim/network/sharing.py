"""Max-min fair sharing of links among flows, by progressive filling, in simulated time.

Progressive filling (Bertsekas and Gallager, Data Networks, section 6.5.2): the rates of all flows grow together until a link is
full; its flows keep their rate, and the others grow on. A flow of a given rate takes rate x weight of each of its links.

Rates change only when a flow starts or ends or a capacity changes, and only for flows that share a link with it, directly or
through others, and are not slower than it. Invariant: up to the rate of the changed flow, the filling is the same with and
without it, so that slower flows keep their rates.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias, cast

import simpy

from sim.units import Bytes, BytesPerSecond, Seconds

Use: TypeAlias = tuple[tuple[int, float], ...]
"""(link number, weight) of each link that a flow uses."""

ROUNDING = 1e-12
"""Relative difference below which two rates count as equal: some thousand times the precision of a float."""


class Flow(simpy.Event):
    """A transfer in progress, and the event of its completion; `until` is the time of completion at the current rate."""

    def __init__(self, env: simpy.Environment, use: Use, nbytes: Bytes):
        super().__init__(env)
        self.use, self.remaining, self.since = use, nbytes, env.now
        self.rate = 0.0
        self.until = math.inf


class Network:
    """Links with capacities, and the flows on them, in a SimPy environment."""

    def __init__(self, env: simpy.Environment, capacities: Iterable[BytesPerSecond]):
        self.env = env
        self.capacities = list(capacities)
        self._on: list[dict[Flow, float]] = [{} for _ in self.capacities]
        self._next: list[tuple[float, int, Flow]] = []
        self._number = itertools.count()
        self._timers: set[float] = set()

    def start(self, use: Use, nbytes: Bytes) -> Flow:
        """Start a flow of `nbytes` over links; the returned event succeeds when the last byte has arrived."""
        flow = Flow(self.env, use, nbytes)
        is_alone = not any(self._on[link] for link, _ in use)
        level = min([self._level(link, weight) for link, weight in use])
        for link, weight in use:
            self._on[link][flow] = weight
        if is_alone:
            self._set_rate(flow, level)
            self._set_timer()
        else:
            self._share([flow], level)
        return flow

    def set_capacity(self, link: int, capacity: BytesPerSecond) -> None:
        """Change the capacity of a link from now on; at 0 its flows stop until it is above 0 again."""
        self.capacities[link] = capacity
        flows = [*self._on[link]]
        if flows:
            self._share(flows, 0.0)

    def cancel(self, flow: Flow) -> None:
        """End a flow before its last byte has arrived; its event never succeeds."""
        for link, _ in flow.use:
            del self._on[link][flow]
        flow.until = math.inf
        self._share([other for link, _ in flow.use for other in self._on[link]], 0.0)

    def put_off(self, flow: Flow, seconds: Seconds) -> None:
        """Pause a flow for `seconds`. Until then no flow may start or end on links that it shares (not checked)."""
        flow.since += seconds
        flow.until += seconds
        heapq.heappush(self._next, (flow.until, next(self._number), flow))
        self._set_timer()

    def load(self, link: int) -> BytesPerSecond:
        """Wire rate in use on a link now; at most its capacity."""
        return sum(flow.rate * weight for flow, weight in self._on[link].items())

    def _arrive(self, timer: simpy.Event) -> None:
        """Complete the flows that are due; a flow whose rate has changed has a newer entry in `_next`, the old one is void."""
        due = cast(float, timer.value)
        self._timers.discard(due)
        arrived: list[Flow] = []
        while self._next and self._next[0][0] <= due:
            until, _, flow = heapq.heappop(self._next)
            if flow.until == until and not flow.triggered:
                for link, _ in flow.use:
                    del self._on[link][flow]
                flow.succeed()
                arrived.append(flow)
        if any(self._on[link] for flow in arrived for link, _ in flow.use):
            self._share(arrived, min([flow.rate for flow in arrived]))
        else:
            self._set_timer()

    def _set_timer(self) -> None:
        """Set a timer for the next completion."""
        while self._next and (self._next[0][2].until != self._next[0][0] or self._next[0][2].triggered):
            heapq.heappop(self._next)
        if self._next and (until := self._next[0][0]) not in self._timers:
            self._timers.add(until)
            timer = self.env.timeout(max(until - self.env.now, 0.0), until)
            timer.callbacks.append(self._arrive)

    def _level(self, link: int, weight: float) -> BytesPerSecond:
        """The rate at which a link is full if one more flow of a given weight is added."""
        if not self._on[link]:
            return self.capacities[link] / weight
        left, weight = self.capacities[link], weight + sum(self._on[link].values())
        for flow, its in sorted(self._on[link].items(), key=lambda item: item[0].rate):
            if flow.rate * weight >= left:
                break
            left, weight = left - flow.rate * its, weight - its
        return left / weight

    def _share(self, changed: list[Flow], level: BytesPerSecond) -> None:
        """Recompute the rates that depend on flows that start or have ended; only rates of at least `level` can change."""
        connected = self._connected(changed, level)
        left: dict[int, BytesPerSecond] = {}
        for flow in connected:
            for link, _ in flow.use:
                if link not in left:
                    on = self._on[link].items()
                    left[link] = self.capacities[link] - sum([kept.rate * w for kept, w in on if kept not in connected])
        for flow, rate in fair_rates(connected, left, level).items():
            if rate != flow.rate:
                self._set_rate(flow, rate)
        self._set_timer()

    def _set_rate(self, flow: Flow, rate: BytesPerSecond) -> None:
        """Continue a flow at another rate."""
        now = self.env.now
        flow.remaining = max(flow.remaining - flow.rate * (now - flow.since), 0.0)
        flow.since, flow.rate = now, rate
        flow.until = now + flow.remaining / rate if rate else math.inf
        if rate:
            heapq.heappush(self._next, (flow.until, next(self._number), flow))

    def _connected(self, changed: list[Flow], level: BytesPerSecond) -> dict[Flow, None]:
        """Flows connected to the changed ones through shared links and flows that are not slower than `level`.

        The filling is as before up to the level of the first changed flow; slower flows keep their rates.
        """
        slowest = level * (1 - ROUNDING)
        connected = {flow: None for flow in changed if not flow.triggered}
        todo, seen = list(changed), set[int]()
        while todo:
            for link, _ in todo.pop().use:
                if link not in seen:
                    seen.add(link)
                    for flow in self._on[link]:
                        if flow.rate >= slowest and flow not in connected:
                            connected[flow] = None
                            todo.append(flow)
        return connected


def fair_rates(
    flows: Iterable[Flow], capacities: Mapping[int, BytesPerSecond] | Sequence[BytesPerSecond], level: BytesPerSecond = 0.0
) -> dict[Flow, BytesPerSecond]:
    """Max-min fair rates of flows that share links, by progressive filling; every rate is at least `level`.

    Each round fills the link whose remaining capacity by weight is least, fixes the rates of its flows, and takes their share
    from the remaining capacities of all their links. Invariant: fixed rates never exceed the current level.
    """
    crossing: dict[int, list[Flow]] = {}
    weights: dict[int, float] = {}
    for flow in flows:
        for link, weight in flow.use:
            if link in weights:
                weights[link] += weight
                crossing[link].append(flow)
            else:
                weights[link], crossing[link] = weight, [flow]
    left = {link: capacities[link] for link in weights}
    waiting = {link: len(crossing[link]) for link in weights}
    rates: dict[Flow, BytesPerSecond] = {}
    while weights:
        rate, tightest = min([(left[link] / weight, link) for link, weight in weights.items()])
        level = max(level, rate)  # levels never fall, except by rounding
        for flow in crossing[tightest]:
            if flow in rates:
                continue
            rates[flow] = level
            for link, weight in flow.use:
                waiting[link] -= 1
                if waiting[link]:
                    left[link] -= level * weight
                    weights[link] -= weight
                else:
                    del weights[link]
    return rates
