"""TCP over long links: the rate that the connections of one rank reach, from window, loss and round-trip time.

A connection sends at most one window in each round trip. With a share p of its packets lost, it also sends at most
MSS / RTT x sqrt(3 / (2 p)) bytes/s (Mathis, Semke, Mahdavi and Ott, The macroscopic behavior of the TCP congestion avoidance
algorithm, ACM CCR 27 (3), 1997, equation 3: Reno, without delayed acknowledgements; CUBIC and BBR send more where losses are
rare). The connections of a rank share its traffic equally."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence

from sim.hardware.cluster import Device, Fleet, Trunk
from sim.hardware.transport import trunk_path
from sim.plan.groups import Group
from sim.units import MEBI, Bytes, BytesPerSecond, Seconds

MSS: Bytes = 1448.0
"""Payload bytes of a packet: Ethernet's 1,500 less the headers of IP (20) and TCP (32, with time stamps). Larger frames rarely
cross sites."""
LINUX_WINDOW: Bytes = 4 * MEBI
"""Largest window of a Linux socket that nobody tuned: net.ipv4.tcp_wmem (kernel documentation, ip-sysctl: 4 MB)."""


LONG: Seconds = 1e-3
"""Latency from which a link is long: the default window fills 16 Gbit/s there (a guess)."""


def is_limited(trunk: Trunk) -> bool:
    """Whether a window or a loss is stated; without either, TCP is taken as tuned to the rate of the link."""
    return bool(trunk.window or trunk.loss)


def rank_rate(trunks: Iterable[Trunk]) -> BytesPerSecond | None:
    """Bytes/s that one rank sends at most over links one after the other; None where none of them is limited.

    The smallest window and number of connections count, the losses add up, and the round trip is twice the sum of latencies."""
    path = tuple(trunks)
    limited = [trunk for trunk in path if is_limited(trunk)]
    if not limited:
        return None
    seconds = 2 * sum(trunk.latency for trunk in path)
    window = min((trunk.window for trunk in limited if trunk.window), default=math.inf)
    loss = sum(trunk.loss for trunk in limited)
    by_loss = MSS * math.sqrt(1.5 / loss) if loss else math.inf
    return min(trunk.connections for trunk in limited) * min(window, by_loss) / seconds


def used(fleet: Fleet, placement: Sequence[Device], groups: Iterable[Group]) -> tuple[Trunk, ...]:
    """The links between clusters that carry TCP of some groups, in the order of the topology."""
    pairs: dict[tuple[str, str, str], None] = {}
    for group in groups:
        if group.transport == "tcp":
            names = list(dict.fromkeys(placement[rank].cluster for rank in group.ranks))
            pairs.update({(a, b, group.nic): None for a, b in itertools.combinations(names, 2)})
    found = {trunk: None for pair in pairs for trunk, _ in trunk_path(fleet, *pair) or ()}
    return tuple(trunk for trunk in fleet.trunks if trunk in found)
