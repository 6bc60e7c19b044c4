"""Flows on links: who gets how much of the network, and until when.

All flows on a link share it max-min fairly: rates grow together until a link is full, its flows keep their rate, the others
grow on (progressive filling; Bertsekas and Gallager, Data Networks, section 6.5.2). A flow takes rate x weight of each of its
links. Rates change only when a flow starts or ends, and only for flows that share a link with it, directly or through others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import simpy

from sim.units import Bytes, BytesPerSecond

Use: TypeAlias = tuple[tuple[int, float], ...]
"""Links by number, each with its weight."""


class Flow:
    """Bytes on their way. `done` is the event of their arrival."""

    __slots__ = ("done", "due", "rate", "remaining", "since", "use")

    def __init__(self, use: Use, nbytes: Bytes, now: float, done: simpy.Event):
        self.use, self.remaining, self.since, self.done = use, nbytes, now, done
        self.rate = 0.0
        self.due: simpy.Event | None = None


class Network:
    """Links with capacities, and the flows on them."""

    def __init__(self, env: simpy.Environment, capacities: Iterable[BytesPerSecond]):
        self.env = env
        self.capacities = tuple(capacities)
        self._on: list[dict[Flow, None]] = [{} for _ in self.capacities]

    def start(self, use: Use, nbytes: Bytes) -> simpy.Event:
        """Put bytes on their way; the event that comes back happens when the last one has arrived."""
        flow = Flow(use, nbytes, self.env.now, self.env.event())
        for link, _ in use:
            self._on[link][flow] = None
        self._share([flow])
        return flow.done

    def load(self, link: int) -> BytesPerSecond:
        """Wire rate in use on a link now; never above its capacity."""
        return sum(flow.rate * dict(flow.use)[link] for flow in self._on[link])

    def _arrive(self, flow: Flow, due: simpy.Event) -> None:
        if flow.due is not due:
            return  # the rate has changed since; another event stands for the arrival
        neighbours = [other for link, _ in flow.use for other in self._on[link] if other is not flow]
        for link, _ in flow.use:
            del self._on[link][flow]
        flow.done.succeed()
        if neighbours:
            self._share(neighbours)

    def _share(self, changed: list[Flow]) -> None:
        """Give new rates to all flows that are joined by links to the changed ones."""
        now = self.env.now
        for flow, rate in fair_rates(self._joined(changed), self.capacities).items():
            if rate == flow.rate and flow.due is not None:
                continue
            flow.remaining -= flow.rate * (now - flow.since)
            flow.since, flow.rate = now, rate
            due = self.env.timeout(max(flow.remaining, 0.0) / rate)
            flow.due = due
            due.callbacks.append(lambda event, flow=flow: self._arrive(flow, event))  # type: ignore[misc]

    def _joined(self, flows: list[Flow]) -> dict[Flow, None]:
        found = dict.fromkeys(flows)
        todo = list(found)
        seen: set[int] = set()
        while todo:
            for link, _ in todo.pop().use:
                if link not in seen:
                    seen.add(link)
                    for flow in self._on[link]:
                        if flow not in found:
                            found[flow] = None
                            todo.append(flow)
        return found


def fair_rates(flows: Iterable[Flow], capacities: tuple[BytesPerSecond, ...]) -> dict[Flow, BytesPerSecond]:
    """Max-min fair rates of flows that share links, by progressive filling."""
    rates: dict[Flow, BytesPerSecond] = {}
    waiting = dict.fromkeys(flows)
    if len(waiting) == 1:
        (flow,) = waiting
        return {flow: min(capacities[link] / weight for link, weight in flow.use)}
    left: dict[int, float] = {}
    weights: dict[int, float] = {}
    for flow in waiting:
        for link, weight in flow.use:
            left.setdefault(link, capacities[link])
            weights[link] = weights.get(link, 0.0) + weight
    members: dict[int, list[Flow]] = {link: [] for link in left}
    for flow in waiting:
        for link, _ in flow.use:
            members[link].append(flow)
    while waiting:
        rate, tightest = min((left[link] / weight, link) for link, weight in weights.items())
        for flow in members[tightest]:
            if flow not in waiting:
                continue
            del waiting[flow]
            rates[flow] = rate
            for link, weight in flow.use:
                left[link] = max(left[link] - rate * weight, 0.0)
                weights[link] -= weight
        for link in [link for link in weights if all(flow not in waiting for flow in members[link])]:
            del weights[link]
    return rates
