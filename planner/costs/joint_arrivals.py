"""Seconds that the links of a stage need for a message from the stage before it and one from the stage behind it together.

Both end at the same device, mostly over the same NIC, which carries them at its full rate at most. So of two messages that
begin at t or later, the last one arrives no sooner than these seconds after t, however they share the links."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from sim.hardware.cluster import Device, Fleet
from sim.network.paths import Capacities, LinkName
from sim.network.routes import message_route
from sim.units import Seconds

Message: TypeAlias = tuple[Device, Device, str]
"""Source, target, and the NIC type between nodes."""


def joint_seconds(fleet: Fleet, capacities: Capacities, ahead: Sequence[Message], back: Sequence[Message]) -> Seconds:
    """Seconds for each byte of two messages, the first of `ahead` and of `back`, on the link of both that needs most; 0 where
    they have none in common. The other messages leave at the same time as these. Trunks do not count.

    Raises NoRoute."""
    loads = [_loads(fleet, messages) for messages in (ahead, back)]
    shared = (link for link in loads[0] if link in loads[1] and link[0] != "trunk")
    return max(((loads[0][link] + loads[1][link]) / capacities(link) for link in shared), default=0.0)


def _loads(fleet: Fleet, messages: Sequence[Message]) -> dict[LinkName, float]:
    """What all of some messages load the links of the first one with."""
    found: dict[LinkName, float] = {}
    for number, (source, target, nic) in enumerate(messages):
        kind = "intra_node" if (source.cluster, source.node) == (target.cluster, target.node) else nic
        (leg,) = message_route(fleet, source, target, kind).legs
        for link, weight in leg.use:
            if not number or link in found:
                found[link] = found.get(link, 0.0) + weight
    return found
