"""Paths, routes and alpha-beta costs: automatic NIC selection, rails, leaves, trunks, and the seconds of messages."""

from __future__ import annotations

from typing import Any

import pytest

from sim import collectives
from sim.analytic import plan_costs
from sim.collectives import names
from sim.engine.engine import simulate
from sim.engine.symmetry import unfolded
from sim.errors import PlanError
from sim.hardware.cluster import Cluster, Device, Fabric, Fleet, Trunk, parse_device
from sim.hardware.link_spec import LinkSpec
from sim.hardware.transport import common_transport, trunk_path
from sim.network.alpha_beta import AlphaBeta, alpha_beta_cost
from sim.network.paths import Capacities, capacity, near_nics
from sim.network.routes import collective_route, message_route
from tests import builders
from tests.builders import cluster, device, wire

ETHERNET_1 = Trunk(("a", "b"), "ethernet", 1e9, 1e-3)


def build(name: str, *kinds: str, vendor: str = "acme", ethernet: bool = True, bandwidth: float = 1e10) -> Cluster:
    """A cluster of two nodes of two devices with 10 GB/s of the given RDMA types and 1 GB/s of Ethernet."""
    nics = tuple(builders.nic(kind, bandwidth) for kind in kinds)
    nics += (builders.nic("ethernet", 1e9),) if ethernet else ()
    return cluster(name, 2, 2, nics, spec=device(f"{vendor}-chip", vendor=vendor))


def chosen(fleet: Fleet, *devices: str) -> tuple[str, str]:
    return common_transport(fleet, tuple(parse_device(text) for text in devices))


def trunks(*kinds: str) -> tuple[Trunk, ...]:
    return tuple(Trunk(("a", "b"), kind, 1e9, 1e-3) for kind in kinds)


def cost_of(fleet: Fleet, source: str, target: str, nic: str) -> AlphaBeta:
    return alpha_beta_cost((message_route(fleet, parse_device(source), parse_device(target), nic),), Capacities(fleet))


# which NIC


def test_devices_of_one_node_use_its_interconnect() -> None:
    assert chosen(builders.fleet(build("a", "infiniband")), "a/node0/dev0", "a/node0/dev1") == ("intra_node", "intra_node")


def test_nodes_of_one_cluster_use_their_fastest_rdma() -> None:
    assert chosen(builders.fleet(build("a", "infiniband")), "a/node0/dev0", "a/node1/dev0") == ("infiniband", "rdma")


def test_rdma_wins_over_faster_ethernet() -> None:
    """Whatever its rate, TCP is staged through the host."""
    nics = (builders.nic("roce", 1e9), builders.nic("ethernet", 1e10))
    assert chosen(builders.fleet(cluster("a", 2, 1, nics)), "a/node0/dev0", "a/node1/dev0") == ("roce", "rdma")


def test_of_two_rdma_types_the_faster_wins_all_its_nics_counted() -> None:
    nics = (builders.nic("roce", 5e9, 4), builders.nic("infiniband", 1e10, 1))
    assert chosen(builders.fleet(cluster("a", 2, 1, nics)), "a/node0/dev0", "a/node1/dev0") == ("roce", "rdma")


def test_infiniband_and_infiniband_are_joined_by_an_infiniband_trunk() -> None:
    fleet = builders.fleet(build("a", "infiniband"), build("b", "infiniband"), trunks=trunks("infiniband", "ethernet"))
    assert chosen(fleet, "a/node0/dev0", "b/node0/dev0") == ("infiniband", "rdma")


def test_infiniband_clusters_without_an_infiniband_trunk_talk_tcp() -> None:
    fleet = builders.fleet(build("a", "infiniband"), build("b", "infiniband"), trunks=trunks("ethernet"))
    assert chosen(fleet, "a/node0/dev0", "b/node0/dev0") == ("ethernet", "tcp")


def test_infiniband_and_roce_do_not_interoperate() -> None:
    fleet = builders.fleet(build("a", "infiniband"), build("b", "roce"), trunks=trunks("ethernet"))
    assert chosen(fleet, "a/node0/dev0", "b/node0/dev0") == ("ethernet", "tcp")


def test_different_vendors_share_no_rdma_unless_the_communicator_is_unified() -> None:
    clusters = build("a", "roce"), build("b", "roce", vendor="other")
    ends = "a/node0/dev0", "b/node0/dev0"
    assert chosen(builders.fleet(*clusters, trunks=trunks("roce", "ethernet")), *ends) == ("ethernet", "tcp")
    unified = builders.fleet(*clusters, trunks=trunks("roce", "ethernet"), communicator="unified")
    assert chosen(unified, *ends) == ("roce", "rdma")


def test_the_slowest_member_decides_for_the_whole_group() -> None:
    fleet = builders.fleet(build("a", "infiniband"), build("b", "roce"), trunks=trunks("ethernet"))
    assert chosen(fleet, "a/node0/dev0", "a/node1/dev0", "b/node0/dev0") == ("ethernet", "tcp")


def test_clusters_without_a_link_are_refused() -> None:
    fleet = builders.fleet(build("a", "infiniband"), build("b", "infiniband"))
    with pytest.raises(PlanError) as caught:
        chosen(fleet, "a/node0/dev0", "b/node0/dev0")
    assert str(caught.value) == (
        "nothing joins clusters a and b: no NIC type that all their nodes have is linked between them; "
        "add a link of type ethernet between them to the topology"
    )


# rails


@pytest.mark.parametrize(
    ("devices", "nics", "near"),
    [
        (8, 8, [(0,), (1,), (2,), (3,), (4,), (5,), (6,), (7,)]),
        (8, 4, [(0,), (0,), (1,), (1,), (2,), (2,), (3,), (3,)]),
        (8, 1, [(0,)] * 8),
        (2, 4, [(0, 1), (2, 3)]),
        (1, 4, [(0, 1, 2, 3)]),
        (3, 2, [(0,), (0,), (1,)]),
        (2, 3, [(0, 1), (2,)]),
    ],
)
def test_each_device_has_its_near_nics_and_no_nic_is_idle(devices: int, nics: int, near: list[tuple[int, ...]]) -> None:
    found = [near_nics(devices, nics, index) for index in range(devices)]
    assert found == near
    assert {nic for nics_of in found for nic in nics_of} == set(range(nics))


def test_a_message_between_nodes_uses_host_and_nic_of_both_ends() -> None:
    fleet = builders.fleet(cluster("a", 2, 2, (builders.nic(count=2, efficiency=0.5),)))
    (leg,) = message_route(fleet, Device("a", 0, 1), Device("a", 1, 0), "infiniband").legs
    assert dict(leg.use) == {
        ("host", "a", 0, 1, "out"): 1.0,
        ("nic", "a", 0, "infiniband", 1, "out"): 2.0,
        ("host", "a", 1, 0, "in"): 1.0,
        ("nic", "a", 1, "infiniband", 0, "in"): 2.0,
    }


def test_a_device_with_two_near_nics_spreads_its_message_over_both() -> None:
    fleet = builders.fleet(cluster("a", 2, 1, (builders.nic(count=2),)))
    (leg,) = message_route(fleet, Device("a", 0, 0), Device("a", 1, 0), "infiniband").legs
    assert [weight for link, weight in leg.use if link[0] == "nic"] == [0.5, 0.5, 0.5, 0.5]


def test_inside_a_node_a_message_leaves_one_port_and_enters_another() -> None:
    fleet = builders.fleet(cluster("a", 1, 2, intra_node=wire(efficiency=0.8)))
    (leg,) = message_route(fleet, Device("a", 0, 0), Device("a", 0, 1), "intra_node").legs
    assert dict(leg.use) == {("port", "a", 0, 0, "out"): 1.25, ("port", "a", 0, 1, "in"): 1.25}


def test_devices_joined_in_pairs_reach_the_bandwidth_of_their_pair() -> None:
    """A message has one partner: 20 of 100 GB/s. A group of three drives two of its pairs: 40 GB/s."""
    fleet = builders.fleet(cluster("a", 1, 4, intra_node=wire(bandwidth=1e11, pair_bandwidth=2e10)))
    assert cost_of(fleet, "a/node0/dev0", "a/node0/dev1", "intra_node").per_byte == pytest.approx(1 / 2e10)
    hosts = (tuple(Device("a", 0, index) for index in range(3)),)
    route = collective_route(fleet, hosts, "intra_node", "ring", "all_gather")
    assert alpha_beta_cost((route,), Capacities(fleet)).per_byte == pytest.approx(2 / 3 / 4e10)


# leaves and trunks


def test_a_leaf_carries_its_nodes_over_the_oversubscription() -> None:
    fleet = builders.fleet(cluster("a", 8, 1, (builders.nic(bandwidth=1e10, count=2),), fabric=Fabric(4, 2.5)))
    assert capacity(fleet, ("leaf", "a", "infiniband", 0, "up")) == 4 * 2 * 1e10 / 2.5


def test_only_traffic_between_leaves_goes_over_the_spine() -> None:
    fleet = builders.fleet(cluster("a", 4, 1, fabric=Fabric(2, 4.0)))

    def leaves(source: int, target: int) -> set[tuple[Any, ...]]:
        (leg,) = message_route(fleet, Device("a", source, 0), Device("a", target, 0), "infiniband").legs
        return {link for link, _ in leg.use if link[0] == "leaf"}

    assert leaves(0, 1) == set()
    assert leaves(1, 2) == {("leaf", "a", "infiniband", 0, "up"), ("leaf", "a", "infiniband", 1, "down")}


def test_an_oversubscribed_leaf_slows_messages_that_leave_it_together() -> None:
    """Two nodes under a leaf of a quarter of their bandwidth: together 5 GB/s, so 2.5 GB/s each."""
    fleet = builders.fleet(cluster("a", 4, 1, fabric=Fabric(2, 4.0)))
    routes = tuple(message_route(fleet, Device("a", n, 0), Device("a", n + 2, 0), "infiniband") for n in (0, 1))
    assert alpha_beta_cost(routes, Capacities(fleet)).per_byte == pytest.approx(1 / 2.5e9)


def test_a_trunk_limits_the_bandwidth_between_clusters_and_adds_its_latency() -> None:
    thin = Trunk(("a", "b"), "infiniband", 1e8, 5e-3)
    fleet = builders.fleet(build("a", "infiniband"), build("b", "infiniband"), trunks=(thin,))
    assert cost_of(fleet, "a/node0/dev0", "b/node0/dev0", "infiniband") == AlphaBeta(5e-3, pytest.approx(1e-8))
    assert cost_of(fleet, "a/node0/dev0", "a/node1/dev0", "infiniband") == AlphaBeta(0.0, pytest.approx(1e-10))


def test_each_direction_of_a_trunk_has_its_own_bandwidth() -> None:
    fleet = builders.fleet(
        build("a", "infiniband"), build("b", "infiniband"), trunks=(Trunk(("a", "b"), "infiniband", 1e8, 0.0),)
    )
    a, b = Device("a", 0, 0), Device("b", 0, 0)
    there, back = (message_route(fleet, *ends, "infiniband") for ends in ((a, b), (b, a)))
    assert alpha_beta_cost((there, back), Capacities(fleet)).per_byte == pytest.approx(1e-8)


def test_the_path_over_a_third_cluster_is_taken_where_it_is_shorter() -> None:
    clusters = tuple(build(name) for name in "abc")
    detour = (Trunk(("a", "c"), "ethernet", 1e9, 1e-3), Trunk(("c", "b"), "ethernet", 1e9, 1e-3))
    slow = Trunk(("a", "b"), "ethernet", 1e9, 5e-3)
    assert [
        trunk.between for trunk, _ in trunk_path(builders.fleet(*clusters, trunks=(slow, *detour)), "a", "b", "ethernet")
    ] == [
        ("a", "c"),
        ("c", "b"),
    ]
    quick = Trunk(("a", "b"), "ethernet", 1e9, 1e-3)
    assert trunk_path(builders.fleet(*clusters, trunks=(quick, *detour)), "b", "a", "ethernet") == ((quick, False),)


def test_clusters_without_a_trunk_have_no_path() -> None:
    assert trunk_path(builders.fleet(build("a"), build("b")), "a", "b", "ethernet") is None


# what it takes


def test_a_message_on_an_idle_network_takes_overhead_latency_and_bytes_over_its_share() -> None:
    card = builders.nic(bandwidth=1e10, latency=5e-6, overhead=2e-5, efficiency=0.8)
    fleet = builders.fleet(cluster("a", 2, 1, (card,)))
    assert cost_of(fleet, "a/node0/dev0", "a/node1/dev0", "infiniband").seconds(1e6) == pytest.approx(
        25e-6 + 1e6 / (1e10 * 0.8)
    )


def test_a_host_bridge_may_be_the_bottleneck() -> None:
    """PCIe of 10 GB/s carries 8."""
    thin = device(host_bandwidth=1e10)
    fleet = builders.fleet(cluster("a", 2, 1, (builders.nic(bandwidth=1e11),), spec=thin))
    assert cost_of(fleet, "a/node0/dev0", "a/node1/dev0", "infiniband").per_byte == pytest.approx(1 / 8e9)


@pytest.mark.parametrize("collective", names())
@pytest.mark.parametrize("n", [2, 4, 8])
def test_a_reduction_between_nodes_is_never_faster_than_its_bytes(collective: str, n: int) -> None:
    """No all_reduce moves less than 2 (n-1)/n of the buffer over some NIC, or the whole buffer where switches add up."""
    fleet = builders.fleet(cluster("a", n, 1))
    hosts = tuple((Device("a", node, 0),) for node in range(n))
    route = collective_route(fleet, hosts, "infiniband", collective, "all_reduce")
    least = 1.0 if collectives.get(collective).IN_NETWORK else 2 * (n - 1) / n
    assert alpha_beta_cost((route,), Capacities(fleet)).per_byte >= least / 1e10 * (1 - 1e-12)


def test_a_ring_between_nodes_takes_two_n_minus_one_over_n() -> None:
    card = builders.nic(bandwidth=1e10, latency=1e-5, overhead=3e-5, efficiency=0.5)
    fleet = builders.fleet(cluster("a", 4, 1, (card,)))
    hosts = tuple((Device("a", node, 0),) for node in range(4))
    found = alpha_beta_cost((collective_route(fleet, hosts, "infiniband", "ring", "all_reduce"),), Capacities(fleet))
    assert found == AlphaBeta(pytest.approx(3e-5 + 6 * 1e-5), pytest.approx(1.5 / (1e10 * 0.5)))


def test_rings_of_all_lanes_share_the_nics_of_their_nodes() -> None:
    """Two lanes over one NIC a node take twice as long a byte as one."""
    fleet = builders.fleet(cluster("a", 2, 2))
    lanes = tuple(
        collective_route(fleet, tuple((Device("a", node, lane),) for node in (0, 1)), "infiniband", "ring", "all_gather")
        for lane in (0, 1)
    )
    one, both = (alpha_beta_cost(routes, Capacities(fleet)).per_byte for routes in (lanes[:1], lanes))
    assert both == pytest.approx(2 * one)


def test_a_device_is_written_cluster_node_device() -> None:
    assert str(Device("ib", 0, 3)) == "ib/node0/dev3"
    assert parse_device("ib/node0/dev3") == Device("ib", 0, 3)


@pytest.mark.parametrize("text", ["ib/0/3", "node0/dev3", "ib/node-1/dev0", "ib/node0/dev3/x", ""])
def test_a_text_that_is_not_a_device_is_refused(text: str) -> None:
    with pytest.raises(PlanError) as caught:
        parse_device(text)
    assert str(caught.value) == f"{text!r} is not a device; write for example 'ib/node0/dev3'"


def test_a_link_has_an_efficiency_for_each_operation() -> None:
    link = LinkSpec("w", 0.0, 0.0, (("all_reduce", 0.7), ("send_recv", 0.9)), 0.0)
    assert link.efficiency_of("send_recv") == 0.9


# PCIe slots


def slots(over_host_link: bool, usable: float = 1.2e10) -> Fleet:
    """Two nodes of two cards: 10 GB/s to other cards, and a NIC of 10 GB/s for each card. A slot has 0.8 of its rate."""
    inside = wire("pcie", bandwidth=1e10, over_host_link=over_host_link)
    nics = (builders.nic(bandwidth=1e10, count=2),)
    return builders.fleet(cluster("a", 2, 2, nics, device(host_bandwidth=usable / 0.8), inside))


@pytest.mark.parametrize(("shared", "together"), [(True, 2e9 / 1.2e10), (False, 0.1)])
def test_messages_to_a_card_and_to_a_nic_share_the_slot(shared: bool, together: float) -> None:
    """Each message of 1 GB takes 0.1 s alone."""
    fleet = slots(shared)
    pairs = (("a/node0/dev0", "a/node0/dev1", "intra_node"), ("a/node0/dev0", "a/node1/dev0", "infiniband"))
    routes = tuple(message_route(fleet, parse_device(a), parse_device(b), nic) for a, b, nic in pairs)
    for route in routes:
        assert alpha_beta_cost((route,), Capacities(fleet)).seconds(1e9) == pytest.approx(0.1)
    assert alpha_beta_cost(routes, Capacities(fleet)).seconds(1e9) == pytest.approx(together)


@pytest.mark.parametrize(
    ("shared", "usable", "seconds"), [(False, 8e9, 0.075), (True, 1.2e10, 0.075), (True, 8e9, 0.75 / 8), (False, 4e9, 0.75 / 8)]
)
def test_a_ring_over_nodes_of_cards_loads_each_slot_once(shared: bool, usable: float, seconds: float) -> None:
    """Every card sends 3 of 4 pieces of 1 GB, to a card or to its NIC, at 10 GB/s each. Without sharing, a slot carries only
    the half of the edge to the other node."""
    fleet = slots(shared, usable)
    hosts = tuple(tuple(Device("a", node, index) for index in range(2)) for node in range(2))
    route = collective_route(fleet, hosts, "infiniband", "ring", "all_gather")
    assert alpha_beta_cost((route,), Capacities(fleet)).seconds(1e9) == pytest.approx(seconds)


def test_slots_of_cards_are_shared_in_the_folded_simulation_too() -> None:
    """Two stages on two nodes of two cards: slower with sharing, as messages meet collectives of tensor parallelism."""
    shared, apart = (builders.plan(slots(one), tp=2, pp=2, microbatches=4, seq_len=512) for one in (True, False))
    step = simulate(shared).step_s
    assert step == pytest.approx(simulate(shared, unfolded(shared)).step_s, rel=1e-9)
    assert plan_costs.step_seconds(shared) <= step * (1 + 1e-9)
    assert step > simulate(apart).step_s
