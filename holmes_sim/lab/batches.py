"""The wiring as text for `ip -batch`, `bridge -batch` and `tc -batch`: what is typed into each namespace. Pure.

Both directions of a link are shaped where packets enter it (tbf at the NIC out of the host, tbf at its port out of the bridge).
Windows are small and queues hold several of them, so that nothing is lost and nobody waits long behind another's bytes: a
lossless fabric with credits, as InfiniBand is. Addresses are known to everybody in advance; ARP would wait in the queues.
"""

from __future__ import annotations

from collections.abc import Iterator

from holmes_sim.lab.wiring import CONTROL, MTU, Bridge, Shape, Wiring
from sim.units import KIBI, MILLI, Bytes, Seconds

SEGMENT: Bytes = 32 * KIBI
"""Bytes that TCP hands to a NIC in one go (gso_max_size)."""
HOLD: Seconds = 10 * MILLI
"""What a connection may have under way on a link, besides what its latency takes: longer than a busy machine lets it wait."""
UNSENT: Bytes = 32 * KIBI
"""What a socket takes beyond what is under way, so that what was sent has left."""
BUFFER: Bytes = 256 * KIBI
"""Least room of a socket; a window needs four times its bytes, as half of the room is bookkeeping."""
QUEUE = 32
"""Windows, each as large as the widest, that a queue holds."""
BURST: Seconds = 1 * MILLI
"""A link that was idle may be ahead of its rate by so much, or by one segment."""
CONGESTION = "cubic"
"""Whatever the machine's default: where nothing is lost, a connection that only obeys its window fills its link."""


def switchboard(wiring: Wiring, pids: tuple[int, ...]) -> Iterator[str]:
    """`ip` in the namespace of the bridges: bridges, NICs whose ends go to the hosts' namespaces (by process), cables."""
    yield from (f"link add {name} type bridge stp_state 0 mcast_snooping 0" for name in ("brctl", *_names(wiring)))
    for number, (host, pid) in enumerate(zip(wiring.hosts, pids, strict=True)):
        yield f"link add h{number}ctl type veth peer name {CONTROL} netns {pid}"
        yield f"link set h{number}ctl master brctl up"
        for nic in host.interfaces:
            yield f"link add {nic.port} mtu {MTU} type veth peer name {nic.name} mtu {MTU} address {nic.mac} netns {pid}"
            yield from _plugged(nic.port, nic.bridge)
    for cable in wiring.cables:
        (a, at), (b, to) = cable.ends
        yield f"link add {a} mtu {MTU} type veth peer name {b} mtu {MTU}"
        yield from (*_plugged(a, at), *_plugged(b, to))
    yield from (f"link set {name} up" for name in ("brctl", *_names(wiring)))


def forwarding(bridges: tuple[Bridge, ...]) -> Iterator[str]:
    """`bridge` in the namespace of the bridges: the port to every NIC."""
    for bridge in bridges:
        yield from (f"fdb add {mac} dev {port} master static" for mac, port in bridge.ports)


def shaping(wiring: Wiring, has_latency: bool) -> Iterator[str]:
    """`tc` in the namespace of the bridges: rates into the hosts, and both ways along cables."""
    limit = QUEUE * widest(wiring, has_latency)
    for host in wiring.hosts:
        yield from (line for nic in host.interfaces for line in _shaped(nic.port, nic.shape, limit, False))
    for cable in wiring.cables:
        for (port, _), shape in zip(cable.ends, cable.shapes, strict=True):
            yield from _shaped(port, shape, limit, has_latency)


def addresses(wiring: Wiring, number: int, has_latency: bool) -> Iterator[str]:
    """`ip` in a host's namespace: its addresses, and one route for each NIC that it can reach."""
    host, late = wiring.hosts[number], has_latency * _latest(wiring)
    own = {nic.name: nic for nic in host.interfaces}
    yield "link set lo up"
    yield f"addr add {host.control}/16 dev {CONTROL}"
    yield f"link set {CONTROL} up"
    for nic in host.interfaces:
        yield f"link set {nic.name} addrgenmode none gso_max_size {SEGMENT}"
        yield f"addr add {nic.address}/32 dev {nic.name}"
        yield f"link set {nic.name} up"
    for address, mac, name in wiring.routes[number]:
        window = f"{_window(own[name].shape, late):.0f}"
        yield f"neigh replace {address} lladdr {mac} dev {name} nud permanent"
        yield f"route add {address}/32 dev {name} src {own[name].address} window {window} congctl {CONGESTION}"


def rates(wiring: Wiring, number: int, has_latency: bool) -> Iterator[str]:
    """`tc` in a host's namespace: rates out of its NICs."""
    limit = QUEUE * widest(wiring, has_latency)
    yield from (line for nic in wiring.hosts[number].interfaces for line in _shaped(nic.name, nic.shape, limit, has_latency))


def settings(wiring: Wiring, has_latency: bool) -> tuple[tuple[str, str], ...]:
    """(file below /proc/sys, value) in a host's namespace: room for what is under way, and hardly for more."""
    room = f"{max(BUFFER, 4 * widest(wiring, has_latency)):.0f}"
    return (
        ("net/ipv4/tcp_wmem", f"4096 {room} {room}"),
        ("net/ipv4/tcp_rmem", f"4096 {room} {room}"),
        ("net/ipv4/tcp_notsent_lowat", f"{UNSENT}"),
        ("net/ipv4/tcp_slow_start_after_idle", "0"),
    )


def widest(wiring: Wiring, has_latency: bool) -> Bytes:
    """The largest window of all connections."""
    late = has_latency * _latest(wiring)
    return max((_window(nic.shape, late) for host in wiring.hosts for nic in host.interfaces), default=BUFFER)


def _window(shape: Shape, late: Seconds) -> Bytes:
    """What may be under way over a NIC: four packets at least."""
    return max(4.0 * MTU, shape.rate * (HOLD + 2 * late))


def _latest(wiring: Wiring) -> Seconds:
    """Latency of the longest way, or more: that of any NIC, and of all cables together."""
    nics = max((nic.shape.latency for host in wiring.hosts for nic in host.interfaces), default=0.0)
    return nics + sum(max(shape.latency for shape in cable.shapes) for cable in wiring.cables)


def _names(wiring: Wiring) -> tuple[str, ...]:
    return tuple(bridge.name for bridge in wiring.bridges)


def _plugged(port: str, bridge: str) -> Iterator[str]:
    yield f"link set {port} addrgenmode none gso_max_size {SEGMENT}"
    yield f"link set {port} master {bridge} up"
    yield f"link set {port} type bridge_slave learning off flood off mcast_flood off bcast_flood off"


def _shaped(name: str, shape: Shape, limit: Bytes, has_latency: bool) -> Iterator[str]:
    """tbf, inside netem where packets are to be late (tc-netem(8): netem at the root, the rate below it)."""
    burst = max(1.25 * SEGMENT, shape.rate * BURST)
    place = "root handle 1:"
    if has_latency and shape.latency:
        yield f"qdisc add dev {name} {place} netem delay {shape.latency * 1e6:.0f}us limit 1000000"
        place = "parent 1:1 handle 10:"
    yield f"qdisc add dev {name} {place} tbf rate {shape.rate:.0f}bps burst {burst:.0f} limit {limit + burst:.0f}"
