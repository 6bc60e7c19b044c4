"""The network between islands while outer periods are simulated: transfers by the names of links, and links that go down."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any, TypeAlias

import simpy

from sim.islands.outer_timeline import Timing
from sim.network.paths import Capacities, LinkName
from sim.network.sharing import Flow, Network
from sim.units import Bytes, Seconds

Steps: TypeAlias = Generator[simpy.Event, Any, None]


class IslandLinks:
    """All links that exchanges and live checkpoints may use, with the weak ones and the outages of a timing.

    Exchanges come one after the other. Where nothing else is on their links, and these stay as they are, an exchange has the
    rate of its slowest link, and the others are left out."""

    def __init__(self, env: simpy.Environment, rate: Capacities, timing: Timing):
        self.env = env
        use = timing.cost.use
        names = dict.fromkeys(link for link, _ in use)
        names |= dict.fromkeys(timing.mesh.links if timing.mesh is not None else ())
        rates = {link: rate(link) * timing.weak.get(link, 1.0) for link in names}
        if use and timing.mesh is None and not timing.outages:
            slowest, _ = min(use, key=lambda one: rates[one[0]] / one[1])
            rates = {slowest: rates[slowest]}
        self._numbers = {link: number for number, link in enumerate(rates)}
        self.network = Network(env, rates.values())
        for link, times in timing.outages.items():
            if link in self._numbers:
                env.process(self._outages(self._numbers[link], times))

    def send(self, use: Iterable[tuple[LinkName, float]], nbytes: Bytes) -> Flow:
        """Start a transfer of bytes that each use so much of these links."""
        numbers = self._numbers
        return self.network.start(tuple((numbers[link], weight) for link, weight in use if link in numbers), nbytes)

    def cancel(self, flow: Flow) -> None:
        """End a transfer before its last byte, if it has not ended."""
        if not flow.triggered:
            self.network.cancel(flow)

    def _outages(self, link: int, times: tuple[tuple[Seconds, Seconds], ...]) -> Steps:
        """Outages of a link."""
        rate = self.network.capacities[link]
        for begin, until in times:
            yield self.env.timeout(max(begin - self.env.now, 0.0))
            self.network.set_capacity(link, 0.0)
            yield self.env.timeout(until - begin)
            self.network.set_capacity(link, rate)
