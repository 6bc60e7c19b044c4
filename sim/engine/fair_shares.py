"""Max-min fair rates of sets of flows of which each occurs thousands of times, for quick simulations (`sim.engine.step_times`).

A set of flows is a number with a bit for each flow. When a flow begins or ends, only the rates of flows that can share links
with it, directly or through others, may change: those beside it. Sets of flows beside each other come again and again, so the
rates of each are computed once."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator, Sequence
from typing import Any

from sim.network.sharing import Use, fair_rates
from sim.units import BytesPerSecond


class FairShares:
    """Rates of flows by their numbers. `uses`: links and weights of each flow; flows may be added to it (`learn`).

    `beside`: for each flow, the set of all flows that can share links with it, directly or through others, itself included."""

    def __init__(self, uses: Sequence[Use], capacities: Sequence[BytesPerSecond]):
        self._uses, self._capacities = uses, capacities
        self.beside: list[int] = []
        self._near: list[int] = []  # for each flow, the set of flows on its links
        self._rates: dict[int, dict[int, BytesPerSecond]] = {}
        self._shared: dict[int, dict[int, BytesPerSecond]] = {}  # the same of flows that share links

    def rates(self, active: int) -> dict[int, BytesPerSecond]:
        """Fair rates of the flows whose bits are set: of each set of flows that share links, directly or through others, by
        itself, because the same sets come again beside others."""
        if active not in self._rates:
            found, left = dict[int, BytesPerSecond](), active
            while left:
                some = self._connected(left)
                left ^= some
                found |= self._of_connected(some)
            self._rates[active] = found
        return self._rates[active]

    def _of_connected(self, active: int) -> dict[int, BytesPerSecond]:
        """Fair rates of flows that share no link with others."""
        if active not in self._shared:
            flows: Any = [_Flow(number, self._uses[number]) for number in _numbers(active)]
            rates: dict[Any, BytesPerSecond] = {**fair_rates(flows, self._capacities)}
            self._shared[active] = {flow.number: rate for flow, rate in rates.items()}
        return self._shared[active]

    def learn(self) -> None:
        """Learn of the flows that were added since the last time, if any."""
        if len(self._near) == len(self._uses):
            return
        on_link: dict[int, int] = {}
        for number, uses in enumerate(self._uses):
            for link, _ in uses:
                on_link[link] = on_link.get(link, 0) | 1 << number
        self._near = [functools.reduce(operator.or_, (on_link[link] for link, _ in uses)) for uses in self._uses]
        self.beside, left = [0] * len(self._near), (1 << len(self._near)) - 1
        while left:
            some = self._connected(left)
            left ^= some
            for number in _numbers(some):
                self.beside[number] = some

    def _connected(self, active: int) -> int:
        """The first of some flows with all of them that share links with it, directly or through others."""
        found = todo = active & -active
        while todo:
            near = 0
            for number in _numbers(todo):
                near |= self._near[number]
            todo = near & active & ~found
            found |= todo
        return found


def _numbers(bits: int) -> Iterator[int]:
    """The numbers of the bits that are set, the lowest first."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


class _Flow:
    """What `fair_rates` needs of a flow."""

    __slots__ = ("number", "use")

    def __init__(self, number: int, use: Use):
        self.number, self.use = number, use
