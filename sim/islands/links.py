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
    """All links that exchanges and live checkpoints may use, with the weak ones and the outages of a timing."""

    def __init__(self, env: simpy.Environment, rate: Capacities, timing: Timing):
        self.env = env
        names = dict.fromkeys(link for link, _ in timing.cost.use)
        names |= dict.fromkeys(timing.mesh.links if timing.mesh is not None else ())
        self._numbers = {link: number for number, link in enumerate(names)}
        self.network = Network(env, [rate(link) * timing.weak.get(link, 1.0) for link in names])
        for link, times in timing.outages.items():
            if link in self._numbers:
                env.process(self._outages(self._numbers[link], times))

    def send(self, use: Iterable[tuple[LinkName, float]], nbytes: Bytes) -> Flow:
        """Start a transfer of bytes that each use so much of these links."""
        return self.network.start(tuple((self._numbers[link], weight) for link, weight in use), nbytes)

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
