"""The wiring as input of `ip -batch`, `bridge -batch` and `tc -batch`, for each namespace. Pure functions.

Both directions of a link are shaped at its ingress (tbf at the host's NIC, and at the bridge's port). TCP windows are small and
queues hold several windows, so no packet is lost and no flow waits long behind another one: this emulates a lossless fabric
with credits, such as InfiniBand. Neighbour entries are static, because ARP requests would wait in the queues.
"""

from __future__ import annotations

from collections.abc import Iterator

from holmes_sim.lab.wiring import CONTROL, MTU, Bridge, Shape, Wiring
from sim.errors import HolmesError
from sim.units import GIBI, KIBI, MILLI, Bytes, Seconds, size_text

SEGMENT: Bytes = 32 * KIBI
"""Bytes that TCP passes to a NIC in one segment (gso_max_size)."""
WINDOW_TIME: Seconds = 10 * MILLI
"""Seconds of the link rate that a connection may have in flight, beyond the round-trip latency. Longer than the scheduling
delays of a busy machine.
"""
UNSENT: Bytes = 32 * KIBI
"""Bytes that a socket accepts beyond the bytes in flight. Small, so that data counts as sent only when it has left."""
BUFFER: Bytes = 256 * KIBI
"""Smallest socket buffer. A window needs four times its bytes, since the kernel counts half of the buffer as overhead."""
QUEUE = 32
"""Capacity of a queue, in windows of the largest size."""
MOST_QUEUED: Bytes = 3.9 * GIBI
"""Most bytes that a queue can hold: the kernel counts them in 32 bits (tc-tbf(8), limit), with a burst beside them."""
BURST: Seconds = 1 * MILLI
"""Time by which a link that was idle may exceed its rate; at least one segment."""
CONGESTION = "cubic"
"""Congestion control, whatever the default of the machine. Without losses, a connection that is limited by its window alone
fills its link.
"""


def bridge_links(wiring: Wiring, pids: tuple[int, ...]) -> Iterator[str]:
    """`ip` commands in the bridges' namespace: bridges, NICs (the host's end is moved to the namespace of its process),
    cables.
    """
    yield from (f"link add {name} type bridge stp_state 0 mcast_snooping 0" for name in ("brctl", *_names(wiring)))
    for number, (host, pid) in enumerate(zip(wiring.hosts, pids, strict=True)):
        yield f"link add h{number}ctl type veth peer name {CONTROL} netns {pid}"
        yield f"link set h{number}ctl master brctl up"
        for nic in host.interfaces:
            yield f"link add {nic.port} mtu {MTU} type veth peer name {nic.name} mtu {MTU} address {nic.mac} netns {pid}"
            yield from _attached(nic.port, nic.bridge)
    for cable in wiring.cables:
        (a, at), (b, to) = cable.ends
        yield f"link add {a} mtu {MTU} type veth peer name {b} mtu {MTU}"
        yield from (*_attached(a, at), *_attached(b, to))
    yield from (f"link set {name} up" for name in ("brctl", *_names(wiring)))


def forwarding(bridges: tuple[Bridge, ...]) -> Iterator[str]:
    """`bridge` commands in the bridges' namespace: the port towards each NIC."""
    for bridge in bridges:
        yield from (f"fdb add {mac} dev {port} master static" for mac, port in bridge.ports)


def shaping(wiring: Wiring, has_latency: bool) -> Iterator[str]:
    """`tc` commands in the bridges' namespace: rates into the hosts, and of both directions of cables."""
    limit = _capacity(wiring, has_latency)
    for host in wiring.hosts:
        yield from (line for nic in host.interfaces for line in _qdisc(nic.port, nic.shape, limit, False))
    for cable in wiring.cables:
        for (port, _), shape in zip(cable.ends, cable.shapes, strict=True):
            yield from _qdisc(port, shape, limit, has_latency)


def addresses(wiring: Wiring, number: int, has_latency: bool) -> Iterator[str]:
    """`ip` commands in a host's namespace: its addresses, and one route to each NIC that it can reach."""
    host, latency = wiring.hosts[number], has_latency * _longest_latency(wiring)
    own = {nic.name: nic for nic in host.interfaces}
    yield "link set lo up"
    yield f"addr add {host.control}/16 dev {CONTROL}"
    yield f"link set {CONTROL} up"
    for nic in host.interfaces:
        yield f"link set {nic.name} addrgenmode none gso_max_size {SEGMENT}"
        yield f"addr add {nic.address}/32 dev {nic.name}"
        yield f"link set {nic.name} up"
    for address, mac, name in wiring.routes[number]:
        window = f"{_window(own[name].shape, latency):.0f}"
        yield f"neigh replace {address} lladdr {mac} dev {name} nud permanent"
        yield f"route add {address}/32 dev {name} src {own[name].address} window {window} congctl {CONGESTION}"


def rates(wiring: Wiring, number: int, has_latency: bool) -> Iterator[str]:
    """`tc` commands in a host's namespace: rates out of its NICs."""
    limit = _capacity(wiring, has_latency)
    yield from (line for nic in wiring.hosts[number].interfaces for line in _qdisc(nic.name, nic.shape, limit, has_latency))


def settings(wiring: Wiring, has_latency: bool) -> tuple[tuple[str, str], ...]:
    """(file below /proc/sys, value) in a host's namespace: socket buffers for the bytes in flight and few more."""
    size = f"{max(BUFFER, 4 * largest_window(wiring, has_latency)):.0f}"
    return (
        ("net/ipv4/tcp_wmem", f"4096 {size} {size}"),
        ("net/ipv4/tcp_rmem", f"4096 {size} {size}"),
        ("net/ipv4/tcp_notsent_lowat", f"{UNSENT}"),
        ("net/ipv4/tcp_slow_start_after_idle", "0"),
    )


def largest_window(wiring: Wiring, has_latency: bool) -> Bytes:
    """The largest window of all connections, in bytes."""
    latency = has_latency * _longest_latency(wiring)
    return max((_window(nic.shape, latency) for host in wiring.hosts for nic in host.interfaces), default=BUFFER)


def _capacity(wiring: Wiring, has_latency: bool) -> Bytes:
    """Bytes that the queue of a port holds. Raises HolmesError where the kernel has no queue of that size."""
    window = largest_window(wiring, has_latency)
    if QUEUE * window > MOST_QUEUED:
        raise HolmesError(
            f"links of this plan are too fast for the lab at this scale: a connection has {size_text(window)} in flight, and "
            f"the kernel's queues hold {size_text(MOST_QUEUED / QUEUE)} of each; take a larger --scale, or leave it out: then "
            "the lab chooses one"
        )
    return QUEUE * window


def _window(shape: Shape, latency: Seconds) -> Bytes:
    """Bytes in flight over a NIC: its rate times (window time + round trip), at least four packets."""
    return max(4.0 * MTU, shape.rate * (WINDOW_TIME + 2 * latency))


def _longest_latency(wiring: Wiring) -> Seconds:
    """Upper bound of the latency of any path: the largest latency of a NIC, plus the latencies of all cables."""
    nics = max((nic.shape.latency for host in wiring.hosts for nic in host.interfaces), default=0.0)
    return nics + sum(max(shape.latency for shape in cable.shapes) for cable in wiring.cables)


def _names(wiring: Wiring) -> tuple[str, ...]:
    """Names of the bridges."""
    return tuple(bridge.name for bridge in wiring.bridges)


def _attached(port: str, bridge: str) -> Iterator[str]:
    """Commands that attach a port to a bridge, without learning and flooding."""
    yield f"link set {port} addrgenmode none gso_max_size {SEGMENT}"
    yield f"link set {port} master {bridge} up"
    yield f"link set {port} type bridge_slave learning off flood off mcast_flood off bcast_flood off"


def _qdisc(name: str, shape: Shape, limit: Bytes, has_latency: bool) -> Iterator[str]:
    """`tc` commands of one port: tbf, inside netem if there is latency (tc-netem(8): netem at the root, the rate below it)."""
    burst = max(1.25 * SEGMENT, shape.rate * BURST)
    place = "root handle 1:"
    if has_latency and shape.latency:
        yield f"qdisc add dev {name} {place} netem delay {shape.latency * 1e6:.0f}us limit 1000000"
        place = "parent 1:1 handle 10:"
    yield f"qdisc add dev {name} {place} tbf rate {shape.rate:.0f}bps burst {burst:.0f} limit {limit + burst:.0f}"
