"""Seconds that an exchange of tokens takes on each link, where ranks send each other unequal numbers of bytes.

The links of two ranks, their weights and their rates are those of an all_to_all (`sim.network.paths`), so that with equal
shares the busiest link takes as long as the all_to_all that the engine simulates (`sim.network.alpha_beta`). Latencies are left
out: they do not depend on who sends how much.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sim.hardware.cluster import Fleet
from sim.network.paths import Capacities, End, LinkName, Traffic, path
from sim.network.protocols import protocols
from sim.network.routes import Devices, by_host, member
from sim.units import Seconds

Numbers: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TokenExchange:
    """Links of an exchange among n ranks. `per_byte[l, i, j]`: seconds of link l for a byte from rank i to rank j."""

    links: tuple[LinkName, ...]
    per_byte: Numbers

    def loads(self, sent: Numbers) -> Numbers:
        """Seconds of each link; `sent[i, j]`: bytes from rank i to rank j, of each of the groups side by side."""
        loads: Numbers = np.tensordot(self.per_byte, sent, axes=((1, 2), (0, 1)))
        return loads

    def seconds(self, sent: Numbers) -> Seconds:
        """Seconds of the busiest link."""
        return float(self.loads(sent).max(initial=0.0))


@functools.lru_cache(maxsize=256)  # layers of a stage have equal groups
def token_exchange(fleet: Fleet, groups: tuple[Devices, ...], nic: str) -> TokenExchange:
    """The exchange of ep groups that run side by side, each given as its devices in rank order, over one type of NIC.

    Ranks of equal index in their groups send alike. Raises NoRoute if nothing joins two devices."""
    members = tuple(member(group, nic, "all_to_all") for group in groups)
    protocol = protocols(fleet, members, "all_to_all")[-1]
    capacities, ranks = Capacities(fleet), len(groups[0])
    found: dict[LinkName, Numbers] = {}
    for group in groups:
        near = {device: tuple(other.index for other in host) for host in by_host(group) for device in host}
        for i, source in enumerate(group):
            traffic = Traffic(nic, "all_to_all", len(near[source]), ranks, protocol)
            for j, target in enumerate(group):
                if i == j:
                    continue
                step = path(fleet, End(source, near[source]), End(target, near[target]), traffic)
                for link, weight in step.use:
                    if link not in found:
                        found[link] = np.zeros((ranks, ranks))
                    found[link][i, j] += weight / capacities(link)
    return TokenExchange(tuple(found), np.array(list(found.values())).reshape(len(found), ranks, ranks))
