"""Specification of a link: latency, overhead and efficiency of an interconnect inside a node or of a NIC type."""

from __future__ import annotations

from dataclasses import dataclass

from sim.units import Bytes, BytesPerSecond, Seconds

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv")
"""Operations for which every link gives an efficiency."""


@dataclass(frozen=True, slots=True)
class Protocol:
    """A protocol of the collective library: overhead + steps x latency + bytes / (`share` x rate of large payloads) seconds.

    A library has several (NCCL: LL, LL128, Simple) and takes the fastest one for the payload. If `in_switch`, the switch itself
    reduces (NVLS), so that (n + 1)/n of the payload goes through every port instead of 2 (n - 1)/n. In a pipelined collective
    (a tree), a rank forwards `chunk` bytes of each device's share only when it has received them all. If `in_trees`, only
    pipelined collectives use the protocol; if it has an `operation`, only this one. `gap` is the time of each message of a rank
    to a peer.
    """

    name: str
    overhead: Seconds
    latency: Seconds
    share: float
    in_switch: bool = False
    chunk: Bytes = 0.0
    in_trees: bool = False
    operation: str = ""
    gap: Seconds = 0.0


@dataclass(frozen=True, slots=True)
class LinkSpec:
    """An interconnect inside a node, or a NIC type.

    Every step of a collective takes `latency`; every collective or message takes `overhead` once. Where `protocols` are given,
    their values replace both in collectives. `efficiency` is the share of the wire rate that large payloads reach, by
    operation. Of the n pieces of a collective a rank sends n - 1, or 2 (n - 1) in an all_reduce, and spends the time of
    `own_piece` pieces on its own one (a copy, in NCCL). `group_bandwidth` lists (least number of devices, wire rate that a
    group of at least so many drives); `pair_bandwidth` is the wire rate between two devices that are joined pair by pair, else
    0. `interference` slows compute that communication overlaps. `over_host_link` says that the devices have no other wires than
    their links to the host (PCIe cards), so that traffic inside the node and traffic to NICs share these. Of a NIC type, `gap`
    is the least time between two messages of a rank to different peers (the gap of the LogP model), and `host_limit` the rate
    that software on the host reaches over one NIC, however fast its wire is; 0: no limit. `delay` is added to `latency`, except
    in collectives of gradients and parameters, which are queued one behind the other.
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
    gap: Seconds = 0.0
    host_limit: BytesPerSecond = 0.0
    delay: Seconds = 0.0
    over_host_link: bool = False

    def protocol(self, name: str) -> Protocol:
        """The protocol of that name; if the link has none, one with the link's own overhead and latency."""
        for found in self.protocols:
            if found.name == name:
                return found
        return Protocol("", self.overhead, self.latency, 1.0)

    def port_bandwidth(self, members: int) -> BytesPerSecond:
        """Wire rate of one port in a collective of `members` devices of the node."""
        rates = [(least, rate) for least, rate in self.group_bandwidth if least <= members]
        if rates:
            return min(self.bandwidth, max(rates)[1])
        return min(self.bandwidth, (members - 1) * self.pair_bandwidth) if self.pair_bandwidth else self.bandwidth

    def efficiency_of(self, operation: str) -> float:
        """Share of the wire rate that large payloads of an operation (one of `OPERATIONS`) reach."""
        return dict(self.efficiency)[operation]
