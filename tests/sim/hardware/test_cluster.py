"""Nodes of one host and of several: who is near to which NIC, and what hosts are called."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.hardware.cluster import Device
from sim.network.paths import near_nics
from tests import builders
from tests.builders import nic


def test_a_host_of_a_domain_is_the_node_that_was_joined() -> None:
    host = builders.cluster("a", 1, 4, (nic("roce", count=2), nic("ethernet"))).node
    domain = host.joined(18)
    assert (domain.count, [one.count for one in domain.nics], domain.hosts) == (72, [36, 18], 18)
    assert domain.host == host.host == host


@pytest.mark.parametrize(("devices", "nics"), [(4, 1), (4, 3), (4, 4), (2, 8), (3, 2)])
def test_a_device_of_a_domain_is_near_to_the_nics_of_its_own_host(devices: int, nics: int) -> None:
    hosts = 5
    for host in range(hosts):
        for index in range(devices):
            alone = near_nics(devices, nics, index)
            joined = near_nics(hosts * devices, hosts * nics, host * devices + index)
            assert joined == tuple(host * nics + one for one in alone)


def test_hosts_of_domains_have_numbers_and_names() -> None:
    node = builders.cluster("gb", 1, 4).node.joined(3)
    cluster = replace(builders.cluster("gb", 2), node=node)
    assert (cluster.num_hosts, cluster.devices) == (6, 24)
    assert cluster.on_host(Device("gb", 1, 9)) == (5, 1)
    assert cluster.hosts_of(1) == ("gb-node1-host0", "gb-node1-host1", "gb-node1-host2")
    named = replace(cluster, hosts=("a", "b", "c", "d", "e", "f"))
    assert named.hosts_of(1) == ("d", "e", "f")
    assert builders.cluster("gb", 2, 4).host(1) == "gb-node1"
