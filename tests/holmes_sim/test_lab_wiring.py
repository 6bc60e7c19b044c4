"""What the lab wires: rates, names, addresses, who reaches whom, over which shaped links. Pure, so it runs anywhere."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from holmes_sim.lab import notes
from holmes_sim.lab.batches import addresses, bridge_links, forwarding, largest_window, shaping
from holmes_sim.lab.batches import settings as batch_settings
from holmes_sim.lab.payload_rates import PayloadRates, as_wired, smallest_scale
from holmes_sim.lab.wiring import PAYLOAD, Host, Interface, Wiring, wire
from sim.engine.engine import simulate
from sim.errors import HolmesError
from sim.hardware.cluster import Device, Fabric, Fleet, Trunk
from sim.hardware.link_spec import OPERATIONS
from sim.hardware.transport import trunk_path
from sim.plan.plan import Plan
from tests import builders
from tests.builders import any_plan, cluster


@pytest.fixture
def hybrid() -> Plan:
    """Two InfiniBand and two RoCE nodes of two devices and two NICs each, joined by Ethernet: pp over it, dp over RDMA."""
    sides = (builders.nic("infiniband", 2e10, 2), builders.nic("roce", 1e10, 2))
    clusters = [
        cluster(name, 2, 2, (nic, builders.nic("ethernet", 5e9, efficiency=0.8, latency=5e-5)))
        for name, nic in zip("ab", sides, strict=True)
    ]
    return builders.plan(builders.fleet(*clusters, trunks=(Trunk(("a", "b"), "ethernet", 4e9, 1e-3),)), pp=2, dp=4)


def nic_of(wiring: Wiring, host: str, name: str) -> Interface:
    return next(nic for h in wiring.hosts if str(h) == host for nic in h.interfaces if nic.name == name)


def walk(wiring: Wiring, source: Interface, target: Interface) -> list[str] | None:
    """Ports out of which a packet from one NIC to another goes, in order; None where a bridge does not know the way."""
    known = {bridge.name: dict(bridge.ports) for bridge in wiring.bridges}
    beyond = {}
    for cable in wiring.cables:
        (a, at), (b, to) = cable.ends
        beyond |= {a: to, b: at}
    at, ports = source.bridge, list[str]()
    while target.mac in known[at]:
        ports.append(known[at][target.mac])
        assert len(ports) < 20, "a packet goes in a circle"
        if ports[-1] == target.port:
            return ports
        at = beyond[ports[-1]]
    return None


def pairs(wiring: Wiring) -> list[tuple[Host, Interface, Host, Interface]]:
    return [
        (here, a, there, b)
        for here in wiring.hosts
        for there in wiring.hosts
        for a in here.interfaces
        for b in there.interfaces
        if here != there and a.kind == b.kind
    ]


# rates


def test_a_nic_carries_what_the_model_says_and_headers_beside_it(hybrid: Plan) -> None:
    wiring = wire(hybrid, 100)
    assert nic_of(wiring, "a/node0", "infiniband1").shape.rate * PAYLOAD == pytest.approx(2e10 / 100)
    assert nic_of(wiring, "b/node1", "roce0").shape.rate * PAYLOAD == pytest.approx(1e10 / 100)
    assert nic_of(wiring, "b/node1", "ethernet0").shape.rate * PAYLOAD == pytest.approx(0.8 * 5e9 / 100)


def test_headers_of_a_jumbo_packet_take_less_than_a_hundredth() -> None:
    assert pytest.approx(8948 / 9014) == PAYLOAD


def test_a_trunk_is_a_cable_with_its_rate_and_latency_scaled(hybrid: Plan) -> None:
    (cable,) = wire(hybrid, 100).cables
    for shape in cable.shapes:
        assert shape.rate * PAYLOAD == pytest.approx(0.8 * 4e9 / 100)
        assert shape.latency == pytest.approx(0.1)


def test_a_host_limits_its_nics_and_not_the_trunk() -> None:
    """NICs of 25 GB/s carry the 5 GB/s of a host's sockets; the trunk of 12.5 GB/s carries 0.8 of its rate, as simulated."""
    slow = builders.nic("ethernet", 2.5e10, efficiency=0.8, host_limit=5e9)
    clusters = [cluster(name, 1, 1, (slow,)) for name in "ab"]
    plan = builders.plan(builders.fleet(*clusters, trunks=(Trunk(("a", "b"), "ethernet", 1.25e10, 0.0),)), pp=2)
    wiring = wire(plan, 1)
    assert [nic.shape.rate * PAYLOAD for host in wiring.hosts for nic in host.interfaces] == pytest.approx([5e9, 5e9])
    assert [shape.rate * PAYLOAD for cable in wiring.cables for shape in cable.shapes] == pytest.approx([1e10, 1e10])
    wired = as_wired(plan, False).fleet.clusters[0].node.nics[0]
    assert (wired.reached("send_recv") * wired.bandwidth, wired.spec.efficiency_of("send_recv")) == (5e9, 0.8)


def test_a_nic_type_has_the_rate_of_the_operation_that_does_best_on_it() -> None:
    """Gradients at 0.96 and activations at 0.77 over one InfiniBand NIC: the wire is made for 0.96, and a note says so."""
    nic = builders.nic("infiniband", 1e10)
    shares = tuple((name, 0.77 if name == "send_recv" else 0.96) for name in OPERATIONS)
    object.__setattr__(nic.spec, "efficiency", shares)
    both = builders.plan(builders.fleet(cluster("a", 4, 1, (nic,))), pp=2, dp=2)
    messages = builders.plan(builders.fleet(cluster("a", 2, 1, (nic,))), pp=2)
    assert PayloadRates(both).share("a", "infiniband") == 0.96
    assert PayloadRates(messages).share("a", "infiniband") == 0.77
    assert notes(messages, wire(messages, 1)) == ()
    (note,) = notes(both, wire(both, 1))
    assert note.startswith("infiniband: send_recv is 1.25 times as fast as modelled")


# who is there


def test_only_nodes_and_nics_that_the_plan_uses_are_wired(hybrid: Plan) -> None:
    wiring = wire(hybrid, 100)
    assert [str(host) for host in wiring.hosts] == ["a/node0", "a/node1", "b/node0", "b/node1"]
    assert [nic.name for nic in wiring.hosts[0].interfaces] == ["ethernet0", "infiniband0", "infiniband1"]
    assert [nic.name for nic in wiring.hosts[2].interfaces] == ["ethernet0", "roce0", "roce1"]


def test_ethernet_is_not_wired_where_no_group_uses_it() -> None:
    nics = (builders.nic("infiniband"), builders.nic("ethernet"))
    wiring = wire(builders.plan(builders.fleet(cluster("a", 3, 1, nics)), dp=2), 10)
    assert [[nic.name for nic in host.interfaces] for host in wiring.hosts] == [["infiniband0"], ["infiniband0"]]


def test_a_rank_is_told_the_nics_near_to_its_device(hybrid: Plan) -> None:
    seats = wire(hybrid, 100).ranks
    assert [(seat.host, seat.local_rank) for seat in seats[:4]] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert dict(seats[0].interfaces) == {"ethernet": ("ethernet0",), "infiniband": ("infiniband0",)}
    assert dict(seats[7].interfaces) == {"ethernet": ("ethernet0",), "roce": ("roce1",)}


@given(data=st.data())
def test_names_and_addresses_are_unique_and_short_enough_for_linux(data: st.DataObject) -> None:
    wiring = wire(data.draw(any_plan(16)), 10)
    nics = [nic for host in wiring.hosts for nic in host.interfaces]
    ports = [nic.port for nic in nics] + [port for cable in wiring.cables for port, _ in cable.ends]
    for names in (
        [nic.address for nic in nics],
        [nic.mac for nic in nics],
        [*ports, *(f"h{n}ctl" for n in range(len(wiring.hosts)))],
        *([nic.name for nic in host.interfaces] for host in wiring.hosts),
    ):
        assert len(set(names)) == len(names)
    assert all(len(name) <= 15 for name in [*ports, *(nic.name for nic in nics)])


def test_more_hosts_than_addresses_are_refused() -> None:
    with pytest.raises(HolmesError, match="the plan uses 251 nodes; a lab has at most 250"):
        wire(builders.plan(builders.fleet(cluster("a", 251, 1)), dp=251), 10)


# who reaches whom


def test_infiniband_does_not_reach_roce_and_ethernet_reaches_all(hybrid: Plan) -> None:
    wiring = wire(hybrid, 100)
    fabrics = {frozenset(mac for mac, _ in bridge.ports) for bridge in wiring.bridges}
    kinds = [{nic.kind for host in wiring.hosts for nic in host.interfaces if nic.mac in macs} for macs in fabrics]
    assert sorted(map(sorted, kinds)) == [["ethernet"], ["infiniband"], ["roce"]]
    names = [name for _, _, name in wiring.routes[0]]
    assert sorted(names) == ["ethernet0"] * 3 + ["infiniband0", "infiniband1"]


def test_a_ring_of_trunks_makes_no_loop_and_packets_take_the_model_s_way() -> None:
    """Three clusters, each joined to both others, one pair by a slow detour: its packets go over the third cluster."""
    clusters = [cluster(name, 1, 1, (builders.nic("ethernet", 1e9),)) for name in "abc"]
    ends = [("a", "b", 1e-4), ("b", "c", 1e-4), ("a", "c", 1.0)]
    trunks = tuple(Trunk((a, b), "ethernet", 1e9, latency) for a, b, latency in ends)
    wiring = wire(builders.plan(builders.fleet(*clusters, trunks=trunks), dp=3), 10)
    (a,), (_,), (c,) = (host.interfaces for host in wiring.hosts)
    assert walk(wiring, a, c) == ["c0a", "c1a", c.port]


@given(data=st.data())
def test_packets_cross_the_trunks_and_leaves_that_the_model_names(data: st.DataObject) -> None:
    """As many cables as `trunk_path` has trunks, and an uplink at each end where a leaf is oversubscribed and left."""
    plan = data.draw(any_plan(16))
    wiring = wire(plan, 10)
    assume(len(wiring.hosts) > 1)

    def leaf(host: Host) -> int | None:
        fabric: Fabric | None = plan.fleet.cluster(host.cluster).fabric
        return host.node // fabric.nodes_per_leaf if fabric is not None and fabric.oversubscription > 1 else None

    for here, a, there, b in pairs(wiring):
        trunks = trunk_path(plan.fleet, here.cluster, there.cluster, a.kind)
        ports = walk(wiring, a, b)
        if trunks is None:
            assert ports is None
            continue
        leaves = [leaf(here), leaf(there)]
        uplinks = 0 if not trunks and leaves[0] == leaves[1] else sum(found is not None for found in leaves)
        assert ports is not None
        assert len(ports) == 1 + len(trunks) + uplinks


@given(data=st.data())
def test_a_host_has_a_route_to_every_nic_it_can_reach_and_to_no_other(data: st.DataObject) -> None:
    wiring = wire(data.draw(any_plan(16)), 10)
    for here, routes in zip(wiring.hosts, wiring.routes, strict=True):
        mine = {nic.name: nic for nic in here.interfaces}
        reached = {address: walk(wiring, mine[name], target_of(wiring, address)) for address, _, name in routes}
        assert None not in reached.values()
        wanted = {b.address for host, a, _, b in pairs(wiring) if host == here and walk(wiring, a, b)}
        assert set(reached) == wanted


def target_of(wiring: Wiring, address: str) -> Interface:
    return next(nic for host in wiring.hosts for nic in host.interfaces if nic.address == address)


def test_a_connection_goes_over_the_rail_of_its_target(hybrid: Plan) -> None:
    wiring = wire(hybrid, 100)
    by_name = {target_of(wiring, address).name: name for address, _, name in wiring.routes[0][:3] if address.startswith("10.2")}
    assert by_name == {"infiniband0": "infiniband0", "infiniband1": "infiniband1"}


def test_the_nics_that_a_model_s_collective_spreads_over_are_told_of(hybrid: Plan) -> None:
    assert [note for note in notes(hybrid, wire(hybrid, 100)) if "collectives use" in note] == [
        "infiniband: collectives use 2 NICs of a node in the model; gloo sends each over one",
        "roce: collectives use 2 NICs of a node in the model; gloo sends each over one",
    ]


@pytest.mark.parametrize(("second", "told"), [((0, 1), 0), ((1, 0), 2)])
def test_neighbours_near_to_different_nics_are_told_of(second: tuple[int, int], told: int) -> None:
    """Two stages on a node each, two NICs a node: each rank's neighbour is on its own rail, or both are on the other."""
    machines = builders.fleet(cluster("a", 2, 2, (builders.nic("infiniband", count=2),)))
    placement = (Device("a", 0, 0), Device("a", 0, 1), *(Device("a", 1, index) for index in second))
    plan = builders.plan(machines, pp=2, dp=2, placement=placement)
    found = notes(plan, wire(plan, 100))
    assert len(found) == min(told, 1)
    assert all(note.startswith(f"infiniband: {told} pairs of neighbouring ranks are near different NICs") for note in found)


# the scale


@pytest.mark.parametrize(("cores", "scale"), [(1, 2000.0), (2, 1000.0), (64, 20.0)])
def test_the_scale_is_the_smallest_round_one_that_the_cores_carry(cores: int, scale: float) -> None:
    """Four NICs of 25 GB/s are 100 GB/s; a core carries 87.5 MB/s."""
    plan = builders.plan(builders.fleet(cluster("a", 4, 1, (builders.nic("infiniband", 2.5e10),))), dp=4)
    assert smallest_scale(plan, cores) == scale


def test_slow_links_are_not_made_faster() -> None:
    plan = builders.plan(builders.fleet(cluster("a", 2, 1, (builders.nic("ethernet", 1e6),))), dp=2)
    assert smallest_scale(plan, 2) == 1.0


# the plan as wired


def test_the_plan_as_wired_takes_the_time_of_its_useful_bytes() -> None:
    """Latency, overhead and interference are gone; a wire at half its rate takes the time of one that is half as wide."""
    slow = builders.nic("infiniband", 1e8, efficiency=0.5, latency=1.0, overhead=3.0, interference=0.5)
    half = builders.nic("infiniband", 5e7)
    plan, narrow = (builders.plan(builders.fleet(cluster("a", 2, 1, (nic,))), dp=2) for nic in (slow, half))
    assert simulate(as_wired(plan, False)).step_s == pytest.approx(simulate(narrow).step_s)
    assert simulate(as_wired(plan, True)).step_s > simulate(narrow).step_s + 1.0


# what is typed


def test_every_direction_of_every_link_is_shaped_once(hybrid: Plan) -> None:
    wiring = wire(hybrid, 100)
    lines = list(shaping(wiring, False))
    devices = [line.split()[3] for line in lines]
    assert sorted(devices) == sorted([*(n.port for h in wiring.hosts for n in h.interfaces), "c0a", "c0b"])
    assert lines[0].startswith("qdisc add dev h0n0 root handle 1: tbf rate 40295")


def test_where_packets_are_late_netem_stands_before_the_rate(hybrid: Plan) -> None:
    first, second = list(shaping(wire(hybrid, 100), True))[-2:]
    assert first == "qdisc add dev c0b root handle 1: netem delay 100000us limit 1000000"
    assert second.startswith("qdisc add dev c0b parent 1:1 handle 10: tbf rate ")


def test_sockets_hold_what_is_under_way_and_little_more(hybrid: Plan) -> None:
    """Ten milliseconds of the fastest NIC; with latency, twice that of the longest way as well. Four times that in room."""
    wiring, rate = wire(hybrid, 100), 2e10 / 100 / PAYLOAD
    assert largest_window(wiring, False) == pytest.approx(0.01 * rate)
    assert largest_window(wiring, True) == pytest.approx((0.01 + 2 * (0.1 + 0.005)) * rate)
    assert dict(batch_settings(wiring, False)) == {
        "net/ipv4/tcp_wmem": "4096 8059008 8059008",
        "net/ipv4/tcp_rmem": "4096 8059008 8059008",
        "net/ipv4/tcp_notsent_lowat": "32768",
        "net/ipv4/tcp_slow_start_after_idle": "0",
    }


def test_a_host_knows_everybody_s_address_in_advance(hybrid: Plan) -> None:
    lines = list(addresses(wire(hybrid, 100), 0, False))
    assert "neigh replace 10.1.3.1 lladdr 02:00:00:01:03:01 dev ethernet0 nud permanent" in lines
    assert "route add 10.1.3.1/32 dev ethernet0 src 10.1.0.1 window 402950 congctl cubic" in lines


def test_bridges_forward_by_heart_only(hybrid: Plan) -> None:
    wiring = wire(hybrid, 100)
    lines = list(bridge_links(wiring, (1, 2, 3, 4)))
    ports = [nic.port for host in wiring.hosts for nic in host.interfaces] + ["c0a", "c0b"]
    silent = "type bridge_slave learning off flood off mcast_flood off bcast_flood off"
    assert [line for line in lines if silent in line] == [f"link set {port} {silent}" for port in ports]
    assert len(list(forwarding(wiring.bridges))) == 2 * 4 + 4 + 4  # Ethernet on two bridges, each RDMA type on one


def test_the_fleet_of_the_hybrid_is_as_the_tests_say(hybrid: Plan) -> None:
    fleet: Fleet = hybrid.fleet
    assert {(group.kind, group.nic) for group in hybrid.groups} == {
        ("pp", "ethernet"),
        ("dp", "infiniband"),
        ("dp", "roce"),
    }
    assert fleet.devices == 8


def test_links_that_no_queue_can_hold_are_refused(hybrid: Plan) -> None:
    """InfiniBand of 20 GB/s: in 10 ms 200 MB are in flight, of which 32 windows exceed 3.9 GiB; at scale 10 they do not."""
    with pytest.raises(HolmesError, match=r"links of this plan are too fast for the lab at this scale: .* a larger --scale"):
        list(shaping(wire(hybrid, 1.0), False))
    assert list(shaping(wire(hybrid, 10.0), False))
