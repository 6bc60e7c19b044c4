"""NVLink domains over several hosts: which link a transfer takes, against hand-computed seconds and measurements."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.analytic import plan_costs
from sim.engine.engine import simulate
from sim.formats import catalog
from sim.hardware.cluster import Cluster, Device, Fleet, Nic, Node
from sim.hardware.transport import common_transport
from sim.network.alpha_beta import alpha_beta_cost, protocol_costs
from sim.network.paths import Capacities
from sim.network.routes import member, message_route
from tests import builders
from tests.more import after, more

GIB = 2**30
DOMAIN = 64
"""Devices of a rack that the measurements use."""


def racks(number: int) -> Fleet:
    """Racks of 16 hosts with four GB300 each that NVLink joins, and a 400 Gbit/s NIC for each device."""
    nic = Nic(catalog.nic_facts("infiniband").isolated(), 50e9, 4)
    host = Node(catalog.device("gb300"), 4, catalog.link_facts("nvlink5").isolated(), (nic,))
    return Fleet("racks", (Cluster("gb", number, host.joined(DOMAIN // 4)),))


def busbw(operation: str, devices: int, number: int, nbytes: float, machines: Fleet | None = None) -> float:
    """GB/s of a collective on the first devices of each rack, as nccl-tests count them."""
    fleet = machines or racks(number)
    group = tuple(Device("gb", rack, index) for rack in range(number) for index in range(devices // number))
    nic, _ = common_transport(fleet, group)
    costs = protocol_costs(fleet, (member(group, nic, "ring"),), operation, Capacities(fleet))
    moved = (devices - 1) / devices * (2 if operation == "all_reduce" else 1)
    return moved * nbytes / min(under.cost.seconds(nbytes) for under in costs) / 1e9


@pytest.mark.parametrize(
    ("operation", "devices", "number", "gib", "measured", "error"),
    after(6, [
        ("all_to_all", 64, 1, 4, 566.3, 0.03), ("all_to_all", 64, 1, 8, 622.92, 0.05), ("all_to_all", 8, 1, 8, 657.81, 0.02),
        ("all_reduce", 4, 1, 8, 663.3, 0.02), ("all_reduce", 64, 1, 8, 891.64, 0.22), ("all_reduce", 128, 2, 8, 799.79, 0.14),
        ("all_reduce", 192, 3, 8, 748.93, 0.10),
        ("all_to_all", 128, 2, 8, 89.7, 0.02),
    ]),
)  # fmt: skip
def test_collectives_in_and_across_racks_agree_with_measurements(
    operation: str, devices: int, number: int, gib: int, measured: float, error: float
) -> None:
    """GB/s on GB300, NCCL 2.27.3, 4 x 400 Gbit/s a host, chunks of 512 KiB (Oracle OCI's page on GB200, whose numbers are those
    of GB300 by their device names). Nothing is fitted to these numbers: an all_to_all of large messages was fitted to 8 GPUs of
    HGX B200. The switch reduces in the all_reduce of 64, which `nvlink5` leaves out."""
    assert busbw(operation, devices, number, gib * GIB) == pytest.approx(measured, rel=error)


@pytest.mark.parametrize(
    ("devices", "gib", "measured"), after(2, [(64, 8, 649.03), (64, 16, 666.92), (8, 8, 679.65), (4, 8, 624.98)])
)
def test_all_to_all_in_a_rack_of_another_page(devices: int, gib: int, measured: float) -> None:
    """NCCL 2.28.7, Oracle OCI's page on GB300; nothing is fitted to it."""
    assert busbw("all_to_all", devices, 1, gib * GIB) == pytest.approx(measured, rel=0.035)


@more
def test_messages_of_less_than_64_mib_are_those_of_the_usual_protocol() -> None:
    """On 8 GPUs of HGX B200 560 GB/s at 512 MiB, 605 and 673 at 1 and 16 GiB (nccl-tests of May 2026)."""
    assert busbw("all_to_all", 8, 1, GIB / 2) == pytest.approx(559.03, rel=0.06)
    assert busbw("all_to_all", 8, 1, GIB) == pytest.approx(604.86, rel=0.02)
    assert busbw("all_to_all", 8, 1, 16 * GIB) == pytest.approx(672.67, rel=0.01)


@pytest.mark.parametrize(("gib", "measured"), [(8, 47.3), (16, 47.67)])
def test_the_cliff_at_the_edge_of_a_domain(gib: int, measured: float) -> None:
    """The second page has eight NICs of 400 Gbit/s a host and NCCL's own chunks of 128 KiB, with which a device of HGX B200
    sends 22.6 GB/s of an all_to_all (42.4 GB/s of bus bandwidth on two nodes of eight)."""
    host = replace(racks(2).clusters[0].node.host, nics=(limited(8),))
    fleet = Fleet("racks", (Cluster("gb", 2, host.joined(DOMAIN // 4)),))
    assert busbw("all_to_all", 128, 2, gib * GIB, fleet) == pytest.approx(measured, rel=0.06)


def test_the_limit_holds_for_each_device_and_not_for_gradients() -> None:
    """HGX B200, two nodes with eight NICs of 400 Gbit/s, NCCL's settings (nccl-tests of May 2026): an all_to_all to which the
    limit was set, and sends, which are 15 % slower. An all_reduce is as fast as without the limit."""
    node = Node(catalog.device("b200-sxm-180gb"), 8, catalog.link_facts("nvlink5").isolated(), (limited(8),))
    fleet, free = (
        Fleet("hgx", (Cluster("gb", 2, one),)) for one in (node, replace(node, nics=(replace(node.nics[0], send_limit=0.0),)))
    )
    assert busbw("all_to_all", 16, 2, 8 * GIB, fleet) == pytest.approx(42.41, rel=0.02)
    assert seconds(fleet, (Device("gb", 0, 0), Device("gb", 1, 0))) == pytest.approx(1 / 19.6, rel=0.15)
    assert seconds(free, (Device("gb", 0, 0), Device("gb", 1, 0))) < 0.6 / 19.6
    every = tuple((Device("gb", 0, i), Device("gb", 1, i)) for i in range(8))
    assert seconds(fleet, *every) == pytest.approx(seconds(fleet, every[0]))
    assert busbw("all_reduce", 16, 2, GIB, fleet) == busbw("all_reduce", 16, 2, GIB, free)


def limited(count: int) -> Nic:
    """NICs of 400 Gbit/s over which a device sends 22.6 GB/s."""
    return Nic(catalog.nic_facts("infiniband").isolated(), 50e9, count, send_limit=22.6e9)


@pytest.mark.parametrize("limit", [0.0, 4e9, 1e9])
def test_the_engine_meets_the_closed_form_with_limited_messages(limit: float) -> None:
    """Two stages on two nodes whose NICs carry 10 GB/s."""
    nic = replace(builders.nic(), send_limit=limit)
    machines = builders.fleet(builders.cluster("a", 2, 1, (nic,)))
    plan = builders.plan(machines, pp=2, microbatches=4, shape={"hidden": 1536})
    assert simulate(plan).step_s == pytest.approx(plan_costs.step_seconds(plan), rel=1e-9)
    message = seconds(machines, (Device("a", 0, 0), Device("a", 1, 0)))
    assert message == pytest.approx(1e9 / min(limit or 1e10, 1e10))


def two_domains() -> Fleet:
    """Two domains of two hosts of two devices: 100 GB/s of NVLink, one NIC of 10 GB/s for each host."""
    cluster = builders.cluster("a", 2, 2)
    return builders.fleet(replace(cluster, node=cluster.node.joined(2)))


def seconds(fleet: Fleet, *pairs: tuple[Device, Device]) -> float:
    """Seconds of messages of 1 GB each that run side by side."""
    routes = tuple(message_route(fleet, *pair, common_transport(fleet, pair)[0]) for pair in pairs)
    return alpha_beta_cost(routes, Capacities(fleet)).seconds(1e9)


def test_hosts_of_a_domain_talk_over_nvlink_and_other_hosts_over_their_own_nics() -> None:
    fleet, a = two_domains(), [Device("a", 0, index) for index in range(4)]
    b = [Device("a", 1, index) for index in range(4)]
    assert seconds(fleet, (a[0], a[3])) == pytest.approx(0.01)
    assert seconds(fleet, (a[0], b[0])) == pytest.approx(0.1)
    assert seconds(fleet, (a[0], b[0]), (a[1], b[1])) == pytest.approx(0.2)  # one host, one NIC
    assert seconds(fleet, (a[0], b[0]), (a[2], b[2])) == pytest.approx(0.1)  # two hosts, two NICs


def test_the_step_of_tensor_parallel_ranks_on_two_hosts_meets_the_closed_form_and_is_that_of_one_host() -> None:
    """A tensor-parallel group of four on a domain is as fast as on one host of four devices."""
    plan = builders.plan(two_domains(), tp=4, pp=2, microbatches=3)
    assert [group.nic for group in plan.groups if group.kind == "tp"] == ["intra_node", "intra_node"]
    step = simulate(plan).step_s
    assert step == pytest.approx(plan_costs.step_seconds(plan))
    hosts = builders.fleet(builders.cluster("a", 2, 4, (builders.nic(count=2),)))
    assert step == pytest.approx(simulate(builders.plan(hosts, tp=4, pp=2, microbatches=3)).step_s)
    apart = builders.plan(builders.fleet(builders.cluster("a", 4, 2)), tp=4, pp=2, microbatches=3)
    assert step < simulate(apart).step_s
