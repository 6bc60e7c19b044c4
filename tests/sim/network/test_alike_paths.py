"""Sums over alike transfers: the same links, weights and waits as one path for each transfer."""

from __future__ import annotations

import pytest

from sim import collectives
from sim.hardware.cluster import Device, Fabric, Fleet, Trunk
from sim.network.alike_paths import alike
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
    traffic = [Traffic(nic, operation, len(host), len(ends)) for host in hosts for _ in host]
    numbers = iter(range(len(ends)))
    (current,) = collectives.rounds("ring", operation, tuple(tuple(next(numbers) for _ in host) for host in hosts))
    unit = current.transfers[0].share
    expected, steps = dict[LinkName, float](), 0.0
    for transfer in current.transfers:
        one = path(some, ends[transfer.source], ends[transfer.target], traffic[transfer.source])
        steps += transfer.steps * one.latency
        for link, weight in one.use:
            expected[link] = expected.get(link, 0.0) + weight * transfer.share / unit
    found = alike(some, ends, traffic, current.transfers, unit)
    use = dict[LinkName, float]()
    for own in found:
        own.load(use)
    assert use == pytest.approx(expected, rel=1e-12)
    assert sum(own.steps * own.path.latency for own in found) == pytest.approx(steps, rel=1e-12)


def test_an_all_to_all_between_many_equal_nodes_has_one_path_for_each_pair_of_positions():
    """Of 64 nodes with one member each, all transfers are alike."""
    some = builders.fleet(cluster("a", 64, 4, (builders.nic("infiniband", 1e10),)))
    ends = [End(Device("a", node, 2), (2,)) for node in range(64)]
    (current,) = collectives.rounds("ring", "all_to_all", tuple((rank,) for rank in range(64)))
    (only,) = alike(some, ends, [Traffic("infiniband", "all_to_all", 1, 64)] * 64, current.transfers, 1 / 64)
    use = dict[LinkName, float]()
    only.load(use)
    assert only.total == pytest.approx(64 * 63)
    assert use["nic", "a", 63, "infiniband", 0, "out"] == pytest.approx(
        63 * dict(only.path.use)["nic", "a", 0, "infiniband", 0, "out"]
    )
