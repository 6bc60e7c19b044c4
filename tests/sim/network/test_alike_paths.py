"""Sums over alike transfers: the same links, weights and waits as one path for each transfer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.hardware.cluster import Device, Fabric, Fleet, Trunk
from sim.network.alike_paths import alike_transfers
from sim.network.paths import End, LinkName, Traffic, path
from sim.network.routes import by_host
from tests import builders
from tests.builders import cluster


def fleet() -> Fleet:
    """Five nodes of four devices below leaf switches of two nodes, and two nodes behind a trunk."""
    nics = (builders.nic("infiniband", 1e10, count=2), builders.nic("ethernet", 1e9))
    fabric = Fabric(nodes_per_leaf=2, oversubscription=2.0)
    one, other = cluster("a", 5, 4, nics, fabric=fabric), cluster("b", 2, 4, nics)
    return builders.fleet(one, other, trunks=(Trunk(("a", "b"), "ethernet", 1e9, 1e-3),))


GROUPS = {
    "one device of each node": tuple(Device("a", node, 1) for node in range(5)),
    "all devices of three nodes": tuple(Device("a", node, index) for node in (0, 1, 4) for index in range(4)),
    "unequal parts of nodes": (Device("a", 0, 0), Device("a", 0, 3), Device("a", 3, 2)),
    "over a trunk": tuple(Device(name, node, index) for name in "ab" for node in range(2) for index in (0, 2)),
}


@pytest.mark.parametrize("operation", ["all_to_all", "all_reduce"])
@pytest.mark.parametrize("devices", GROUPS.values(), ids=GROUPS)
def test_sums_are_those_of_one_path_for_each_transfer(devices: tuple[Device, ...], operation: str):
    some, hosts = fleet(), by_host(devices)
    nic = "ethernet" if devices[-1].cluster == "b" else "infiniband"
    ends = [End(device, tuple(one.index for one in host)) for host in hosts for device in host]
    traffic = {device: Traffic(nic, operation, len(host), len(ends)) for host in hosts for device in host}
    ((current, groups),) = alike_transfers(some, hosts, nic, "ring", operation)
    expected, steps = dict[LinkName, float](), 0.0
    for transfer in current.transfers:
        source = ends[transfer.source]
        one = path(some, source, ends[transfer.target], traffic[source.device])
        steps += transfer.steps * one.latency
        for link, weight in one.use:
            expected[link] = expected.get(link, 0.0) + weight * transfer.share / current.transfers[0].share
    use, waits = dict[LinkName, float](), 0.0
    for own in groups:
        one = own.path(some, traffic[own.source.device])
        own.load(one, use)
        waits += sum(own.waits(one.latency))
    assert use == pytest.approx(expected, rel=1e-12)
    assert waits == pytest.approx(steps, rel=1e-12)


def test_an_all_to_all_between_many_equal_nodes_has_one_path():
    """Of 64 nodes with one member each, all transfers are alike."""
    some = builders.fleet(cluster("a", 64, 4, (builders.nic("infiniband", 1e10),)))
    hosts = tuple((Device("a", node, 2),) for node in range(64))
    ((_, (only,)),) = alike_transfers(some, hosts, "infiniband", "ring", "all_to_all")
    assert only.total == pytest.approx(64 * 63)
    assert only.shares["out"] == pytest.approx(dict.fromkeys(range(64), 63.0))


def test_devices_on_unlike_sides_of_a_node_are_not_alike():
    """Without NVLink, ranks on the other CPU than the NICs send over the link between both CPUs."""
    pcie = replace(builders.wire("pcie4"), bandwidth=1e10)
    node = replace(cluster("a", 2, 4).node, intra_node=pcie, socket_link=1e10, nics=(replace(builders.nic(), socket=0),))
    some = builders.fleet(replace(cluster("a", 2, 4), node=node))
    hosts = tuple(tuple(Device("a", number, index) for index in range(4)) for number in range(2))
    ((_, groups),) = alike_transfers(some, hosts, "infiniband", "ring", "all_to_all")
    across = [own for own in groups if own.source.device.node != own.target.device.node]
    assert sorted((own.source.device.index, own.target.device.index) for own in across) == [(0, 0), (0, 2), (2, 0), (2, 2)]
    crossed = [
        any(link[0] == "socket" for link, _ in own.path(some, Traffic("infiniband", "all_to_all", 4, 8)).use) for own in across
    ]
    assert sorted(crossed) == [False, True, True, True]
