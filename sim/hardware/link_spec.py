"""TODO sim.hardware.link_spec."""

from __future__ import annotations

from dataclasses import dataclass

from sim.units import BytesPerSecond, Seconds

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv")
"""Operations that a link states an efficiency for."""


@dataclass(frozen=True, slots=True)
class Protocol:
    """One way in which a library moves a collective's data: overhead + steps x latency + bytes / (`share` of the large rate).

    A library has several (NCCL: LL, LL128, Simple) and takes the quickest for the payload. `in_switch`: the switch itself
    reduces (NVLS), so that (n + 1)/n of the payload goes through every port instead of 2 (n - 1)/n.
    """

    name: str
    overhead: Seconds
    latency: Seconds
    share: float
    in_switch: bool = False


@dataclass(frozen=True, slots=True)
class LinkSpec:
    """An interconnect inside a node, or a NIC type: how well it carries each operation.

    A step of a collective takes `latency`, a collective or message `overhead` once; `protocols` stand for both in collectives,
    where there are any. `efficiency` is the share of the wire rate that large payloads reach, by operation. A rank sends
    n - 1 pieces of a collective's n, or 2 (n - 1) in an all_reduce, and spends the time of `own_piece` more on its own (a copy,
    in NCCL). `group_bandwidth` is the wire rate that groups of so many devices or more drive. `interference` slows compute
    while communication overlaps it.
    """

    name: str
    latency: Seconds
    overhead: Seconds
    efficiency: tuple[tuple[str, float], ...]
    interference: float
    rdma: bool = True
    bandwidth: BytesPerSecond = 0.0
    pair_bandwidth: BytesPerSecond = 0.0
    protocols: tuple[Protocol, ...] = ()
    own_piece: float = 0.0
    group_bandwidth: tuple[tuple[int, BytesPerSecond], ...] = ()

    def protocol(self, name: str) -> Protocol:
        """The protocol of a name; where the link has none of it, the link's own overhead and latency."""
        for found in self.protocols:
            if found.name == name:
                return found
        return Protocol("", self.overhead, self.latency, 1.0)

    def port_bandwidth(self, members: int) -> BytesPerSecond:
        """Wire rate of a port that a group of so many devices of a node drives."""
        rates = [(least, rate) for least, rate in self.group_bandwidth if least <= members]
        if rates:
            return min(self.bandwidth, max(rates)[1])
        return min(self.bandwidth, (members - 1) * self.pair_bandwidth) if self.pair_bandwidth else self.bandwidth

    def efficiency_of(self, operation: str) -> float:
        """Share of the wire rate for an operation of `OPERATIONS`."""
        return dict(self.efficiency)[operation]
