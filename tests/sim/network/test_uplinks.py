"""PCIe switches of several devices: their one link to the host carries traffic to other switches and to NICs."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from sim.analytic.plan_costs import step_seconds
from sim.engine.engine import simulate
from sim.errors import TopologyError
from sim.formats.documents import parse
from sim.formats.topology import from_document
from sim.hardware.cluster import Device, Fleet
from sim.hardware.transport import common_transport
from sim.network.alpha_beta import alpha_beta_cost
from sim.network.paths import PCIE_EFFICIENCY, Capacities
from sim.network.routes import collective_route, message_route
from sim.plan.plan import Plan
from tests import builders

SLOT = 1e10 * PCIE_EFFICIENCY
"""Bytes a second of a slot, and of the link of a switch."""
A, B = 0, 1
"""Nodes."""


def machines(uplink_devices: int = 2, inside: str = "pcie4", count: int = 4) -> Fleet:
    """Two nodes of `count` cards in slots of 8 GB/s, with as many NICs of 100 GB/s."""
    wire = builders.wire(inside, over_host_link=inside.startswith("pcie"))
    nic = builders.nic(bandwidth=1e11, count=count)
    one = builders.cluster("c", 2, count, (nic,), spec=builders.device(host_bandwidth=1e10), intra_node=wire)
    return builders.fleet(replace(one, node=replace(one.node, uplink_devices=uplink_devices)))


def rate(fleet: Fleet, *pairs: tuple[tuple[int, int], tuple[int, int]]) -> float:
    """Bytes a second of each of these messages, given as (node, device) to (node, device), side by side."""
    ends = [(Device("c", *a), Device("c", *b)) for a, b in pairs]
    routes = tuple(message_route(fleet, *pair, common_transport(fleet, pair)[0]) for pair in ends)
    return 1 / alpha_beta_cost(routes, Capacities(fleet)).per_byte


@pytest.mark.parametrize(
    ("pairs", "shared"),
    [
        ([((A, 0), (A, 1)), ((A, 1), (A, 0))], 1),  # below one switch
        ([((A, 0), (A, 2))], 1),
        ([((A, 0), (A, 2)), ((A, 1), (A, 3))], 2),  # both over the link of the first switch
        ([((A, 0), (A, 2)), ((A, 2), (A, 1))], 1),  # one each way
        ([((A, 0), (B, 0)), ((A, 1), (B, 1))], 2),  # NICs are at the host
        ([((A, 0), (B, 0)), ((A, 2), (B, 2))], 1),  # of unlike switches
        ([((A, 0), (A, 2)), ((A, 1), (B, 1))], 2),  # a card's traffic and a NIC's
        ([((A, 0), (A, 1)), ((A, 1), (B, 1))], 1),  # the first stays below the switch
    ],
)
def test_devices_below_a_switch_share_its_link(pairs: list[tuple[tuple[int, int], tuple[int, int]]], shared: int) -> None:
    assert rate(machines(), *pairs) == pytest.approx(SLOT / shared)
    assert rate(machines(0), *pairs) == pytest.approx(SLOT)


def test_nvlink_does_not_load_it_but_nics_do() -> None:
    fleet = machines(inside="nvlink3")
    assert rate(fleet, ((A, 0), (A, 2)), ((A, 1), (A, 3))) == pytest.approx(1e11)
    assert rate(fleet, ((A, 0), (B, 0)), ((A, 1), (B, 1))) == pytest.approx(SLOT / 2)


@pytest.mark.parametrize(("cards", "crossings"), [((0, 1), 0), ((0, 2), 2), ((0, 1, 2, 3), 2)])
def test_a_ring_crosses_it_once_each_way(cards: tuple[int, ...], crossings: int) -> None:
    """Whatever the number of cards, one step leaves a switch and one enters it, so that a ring alone is as fast as without."""
    fleet, free = machines(), machines(0)
    hosts = (tuple(Device("c", 0, index) for index in cards),)
    route, other = (collective_route(one, hosts, "intra_node", "ring", "all_reduce") for one in (fleet, free))
    used = {link for leg in route.legs for link, _ in leg.use if link[0] == "uplink"}
    assert len(used) == 2 * crossings
    costs = [alpha_beta_cost((one,), Capacities(where)).per_byte for one, where in ((route, fleet), (other, free))]
    assert costs[0] == pytest.approx(costs[1])


def crossing(uplink_devices: int, **degrees: int) -> Plan:
    """Pairs of tensor-parallel ranks that are each on both switches of a node."""
    plan = builders.plan(machines(uplink_devices), tp=2, shape={"hidden": 1536}, microbatches=4, **degrees)
    order = (0, 2, 1, 3, 4, 6, 5, 7)[: plan.config.world_size]
    return replace(plan, placement=tuple(Device("c", rank // 4, rank % 4) for rank in order))


def test_the_engine_makes_groups_share_the_link_of_a_switch() -> None:
    """Both pairs of a node wait for 40 all_reduces: four for each of two layers, one for the embedding and one for the head, of
    four microbatches. With two pairs at a time each takes twice as long; the closed form is that of an idle network."""
    alone = simulate(crossing(0, dp=2)).step_s
    assert alone == pytest.approx(step_seconds(crossing(0, dp=2)), rel=1e-9)
    assert simulate(crossing(2, dp=2)).step_s - alone == pytest.approx(40 * 64 * 1536 * 2 / SLOT, rel=1e-6)
    assert simulate(crossing(2, dp=2, pp=2)).step_s > simulate(crossing(0, dp=2, pp=2)).step_s


def test_messages_to_cards_and_to_nics_share_the_link_alike() -> None:
    pairs = [((A, 0), (A, 2)), ((A, 1), (B, 1)), ((A, 1), (B, 1))]
    assert rate(machines(), *pairs) == pytest.approx(SLOT / 3)


@pytest.mark.parametrize("number", [1, 3])
def test_switches_of_unequal_size_are_refused(number: int) -> None:
    node = {"devices": {"type": "l40s", "count": 8}, "intra_node": "pcie4", "uplink_devices": number}
    document = {"format": "holmes-sim/topology/1", "name": "one", "clusters": {"c": {"nodes": 1, "node": node}}}
    with pytest.raises(
        TopologyError, match=f"uplink_devices {number} does not divide the 8 devices of a node into switches of two"
    ):
        from_document(parse("one", json.dumps(document)))
