"""Flows on links: who gets how much of the network, and until when.

All flows on a link share it max-min fairly: rates grow together until a link is full, its flows keep their rate, the others
grow on (progressive filling; Bertsekas and Gallager, Data Networks, section 6.5.2). A flow takes rate x weight of each of its
links. Rates change only when a flow starts or ends, and only for flows that share a link with it, directly or through others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TypeAlias, cast

import simpy

from sim.units import Bytes, BytesPerSecond

Use: TypeAlias = tuple[tuple[int, float], ...]
"""Links by number, each with its weight."""


class Flow(simpy.Event):
    """Bytes on their way, and the event of their arrival; `until` is when they will have arrived at their present rate."""

    def __init__(self, env: simpy.Environment, use: Use, nbytes: Bytes):
        super().__init__(env)
        self.use, self.remaining, self.since = use, nbytes, env.now
        self.rate = 0.0
        self.until = math.inf
        self.due: simpy.Event | None = None


class Network:
    """Links with capacities, and the flows on them."""

    def __init__(self, env: simpy.Environment, capacities: Iterable[BytesPerSecond]):
        self.env = env
        self.capacities = tuple(capacities)
        self._on: list[dict[Flow, None]] = [{} for _ in self.capacities]

    def start(self, use: Use, nbytes: Bytes) -> Flow:
        """Put bytes on their way; the event that comes back happens when the last one has arrived."""
        flow = Flow(self.env, use, nbytes)
        is_alone = True
        for link, _ in use:
            is_alone = is_alone and not self._on[link]
            self._on[link][flow] = None
        if is_alone:
            self._go(flow, narrowest(use, self.capacities))
        else:
            self._share([flow])
        return flow

    def load(self, link: int) -> BytesPerSecond:
        """Wire rate in use on a link now; never above its capacity."""
        return sum(flow.rate * dict(flow.use)[link] for flow in self._on[link])

    def _arrive(self, due: simpy.Event) -> None:
        flow = cast(Flow, due.value)
        if flow.due is not due:
            return  # the rate has changed since; another event stands for the arrival
        for link, _ in flow.use:
            del self._on[link][flow]
        flow.succeed()
        neighbours = [other for link, _ in flow.use for other in self._on[link]]
        if neighbours:
            self._share(neighbours)

    def _share(self, changed: list[Flow]) -> None:
        """Give new rates to all flows that are joined by links to the changed ones."""
        for flow, rate in fair_rates(self._joined(changed), self.capacities).items():
            if rate != flow.rate:
                self._go(flow, rate)

    def _go(self, flow: Flow, rate: BytesPerSecond) -> None:
        """A flow goes on at another rate."""
        now = self.env.now
        flow.remaining = max(flow.remaining - flow.rate * (now - flow.since), 0.0)
        flow.since, flow.rate = now, rate
        left = flow.remaining / rate
        flow.until = now + left
        flow.due = due = self.env.timeout(left, flow)
        due.callbacks.append(self._arrive)

    def _joined(self, flows: list[Flow]) -> dict[Flow, None]:
        found = dict.fromkeys(flows)
        todo = list(found)
        seen: set[int] = set()
        while todo:
            for link, _ in todo.pop().use:
                if link not in seen:
                    seen.add(link)
                    if len(self._on[link]) > 1:
                        todo += [flow for flow in self._on[link] if flow not in found]
                        found.update(self._on[link])
        return found


def narrowest(use: Use, capacities: tuple[BytesPerSecond, ...]) -> BytesPerSecond:
    """Rate of a flow that is alone."""
    return min([capacities[link] / weight for link, weight in use])


def fair_rates(flows: Iterable[Flow], capacities: tuple[BytesPerSecond, ...]) -> dict[Flow, BytesPerSecond]:
    """Max-min fair rates of flows that share links, by progressive filling."""
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
        for flow in crossing[tightest]:
            if flow in rates:
                continue
            rates[flow] = rate
            for link, weight in flow.use:
                waiting[link] -= 1
                if waiting[link]:
                    left[link] = max(left[link] - rate * weight, 0.0)
                    weights[link] -= weight
                else:
                    del weights[link]
    return rates
