"""Flows on links: who gets how much of the network, and until when.

All flows on a link share it max-min fairly: rates grow together until a link is full, its flows keep their rate, the others
grow on (progressive filling; Bertsekas and Gallager, Data Networks, section 6.5.2). A flow takes rate x weight of each of its
links. Rates change only when a flow starts or ends, and only for flows that share a link with it, directly or through others,
and are not slower than it: until the filling comes to its rate, all goes as it would without it.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterable, Mapping
from typing import TypeAlias, cast

import simpy

from sim.units import Bytes, BytesPerSecond, Seconds

Use: TypeAlias = tuple[tuple[int, float], ...]
"""Links by number, each with its weight."""

ROUNDING = 1e-12
"""Rates that differ by less than this part are equal."""


class Flow(simpy.Event):
    """Bytes on their way, and the event of their arrival; `until` is when they will have arrived at their present rate."""

    def __init__(self, env: simpy.Environment, use: Use, nbytes: Bytes):
        super().__init__(env)
        self.use, self.remaining, self.since = use, nbytes, env.now
        self.rate = 0.0
        self.until = math.inf


class Network:
    """Links with capacities, and the flows on them."""

    def __init__(self, env: simpy.Environment, capacities: Iterable[BytesPerSecond]):
        self.env = env
        self.capacities = list(capacities)
        self._on: list[dict[Flow, float]] = [{} for _ in self.capacities]
        self._next: list[tuple[float, int, Flow]] = []
        self._number = itertools.count()
        self._timers: set[float] = set()

    def start(self, use: Use, nbytes: Bytes) -> Flow:
        """Put bytes on their way; the event that comes back happens when the last one has arrived."""
        flow = Flow(self.env, use, nbytes)
        is_alone = not any(self._on[link] for link, _ in use)
        level = min([self._level(link, weight) for link, weight in use])
        for link, weight in use:
            self._on[link][flow] = weight
        if is_alone:
            self._go(flow, level)
            self._wake()
        else:
            self._share([flow], level)
        return flow

    def set_capacity(self, link: int, capacity: BytesPerSecond) -> None:
        """A link has another capacity from now on; at 0 what is on it stands still until it has one again."""
        self.capacities[link] = capacity
        flows = [*self._on[link]]
        if flows:
            self._share(flows, 0.0)

    def put_off(self, flow: Flow, seconds: Seconds) -> None:
        """A flow rests and goes on so much later. Until then nothing else may start or end on links that it shares."""
        flow.since += seconds
        flow.until += seconds
        heapq.heappush(self._next, (flow.until, next(self._number), flow))
        self._wake()

    def load(self, link: int) -> BytesPerSecond:
        """Wire rate in use on a link now; never above its capacity."""
        return sum(flow.rate * weight for flow, weight in self._on[link].items())

    def _arrive(self, timer: simpy.Event) -> None:
        """Flows that have come to their end arrive; flows with another rate since then have another entry in `_next`."""
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
            self._wake()

    def _wake(self) -> None:
        """Have a timer for the next arrival."""
        while self._next and (self._next[0][2].until != self._next[0][0] or self._next[0][2].triggered):
            heapq.heappop(self._next)
        if self._next and (until := self._next[0][0]) not in self._timers:
            self._timers.add(until)
            timer = self.env.timeout(max(until - self.env.now, 0.0), until)
            timer.callbacks.append(self._arrive)

    def _level(self, link: int, weight: float) -> BytesPerSecond:
        """The rate at which a link is full when one more flow comes to it."""
        if not self._on[link]:
            return self.capacities[link] / weight
        left, weight = self.capacities[link], weight + sum(self._on[link].values())
        for flow, its in sorted(self._on[link].items(), key=lambda item: item[0].rate):
            if flow.rate * weight >= left:
                break
            left, weight = left - flow.rate * its, weight - its
        return left / weight

    def _share(self, changed: list[Flow], level: BytesPerSecond) -> None:
        """Give new rates to the flows for which it makes a difference that some start or have ended, at `level` or faster."""
        joined = self._joined(changed, level)
        left: dict[int, BytesPerSecond] = {}
        for flow in joined:
            for link, _ in flow.use:
                if link not in left:
                    on = self._on[link].items()
                    left[link] = self.capacities[link] - sum([kept.rate * w for kept, w in on if kept not in joined])
        for flow, rate in fair_rates(joined, left, level).items():
            if rate != flow.rate:
                self._go(flow, rate)
        self._wake()

    def _go(self, flow: Flow, rate: BytesPerSecond) -> None:
        """A flow goes on at another rate."""
        now = self.env.now
        flow.remaining = max(flow.remaining - flow.rate * (now - flow.since), 0.0)
        flow.since, flow.rate = now, rate
        flow.until = now + flow.remaining / rate if rate else math.inf
        if rate:
            heapq.heappush(self._next, (flow.until, next(self._number), flow))

    def _joined(self, changed: list[Flow], level: BytesPerSecond) -> dict[Flow, None]:
        """Flows joined to some that start or have ended, by links and flows that are not slower than `level`.

        Filling goes as before until the first flow that changed is at its level; who is slower keeps its rate.
        """
        slowest = level * (1 - ROUNDING)
        found = {flow: None for flow in changed if not flow.triggered}
        todo, seen = list(changed), set()
        while todo:
            for link, _ in todo.pop().use:
                if link not in seen:
                    seen.add(link)
                    new = [flow for flow in self._on[link] if flow.rate >= slowest and flow not in found]
                    todo += new
                    found.update(dict.fromkeys(new))
        return found


def fair_rates(
    flows: Iterable[Flow], capacities: Mapping[int, BytesPerSecond], level: BytesPerSecond = 0.0
) -> dict[Flow, BytesPerSecond]:
    """Max-min fair rates of flows that share links, by progressive filling; all get at least `level`."""
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
        level = max(level, rate)  # rates rise but for rounding
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
