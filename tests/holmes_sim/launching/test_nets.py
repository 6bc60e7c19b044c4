"""The network of NCCL that a group uses, by hand."""

from __future__ import annotations

import subprocess
import sys

import pytest

from holmes_sim.launching.nets import joining, net_name, one_vendor, other_networks
from sim.hardware.cluster import Cluster, Device, Trunk
from sim.plan.groups import Group
from sim.plan.plan import Plan
from tests import builders
from tests.builders import cluster, device, fleet


@pytest.mark.parametrize(
    ("nic", "transport", "name"),
    [
        ("infiniband", "rdma", "IB"),
        ("roce", "rdma", "IB"),
        ("ethernet", "tcp", "Socket"),
        ("intra_node", "intra_node", None),
        ("slingshot", "rdma", None),
        ("omni-path", "rdma", None),
    ],
)
def test_net_of_a_group(nic: str, transport: str, name: str | None) -> None:
    assert net_name(Group("dp", (0, 1), nic, transport, "ring")) == name


def two(a: str, b: str, vendor: str = "acme") -> tuple[Cluster, Cluster]:
    """Clusters a and b of two nodes of two devices, with RDMA NICs of these types and Ethernet; b's of another vendor."""

    def one(name: str, nic: str, of: str) -> Cluster:
        return cluster(name, 2, 2, (builders.nic(nic), builders.nic("ethernet", 3e9)), device(vendor=of))

    return one("a", a, "acme"), one("b", b, vendor)


def world_net_name(plan: Plan) -> str | None:
    return joining(plan.fleet, plan.placement)[1]


def joined(kind: str) -> Trunk:
    return Trunk(("a", "b"), kind, 1e9, 1e-4)


def test_a_hybrid_plan_goes_by_ib_in_each_fabric_and_by_sockets_across() -> None:
    plan: Plan = builders.plan(fleet(*two("infiniband", "roce"), trunks=(joined("ethernet"),)), tp=2, pp=2, dp=2)
    assert {group.kind: net_name(group) for group in plan.groups} == {"tp": None, "dp": "IB", "pp": "Socket"}
    assert world_net_name(plan) == "Socket"


@pytest.mark.parametrize(
    ("trunk", "name"), [("ethernet", "Socket"), ("infiniband", "IB")], ids=["Ethernet between", "InfiniBand between"]
)
def test_the_world_of_two_infiniband_clusters(trunk: str, name: str) -> None:
    assert world_net_name(builders.plan(fleet(*two("infiniband", "infiniband"), trunks=(joined(trunk),)), dp=8)) == name


def test_the_world_on_one_node() -> None:
    assert world_net_name(builders.plan(fleet(cluster(devices=4)), dp=4)) is None


def test_a_world_that_no_one_type_of_nic_joins() -> None:
    """A square whose sides, the dp and pp groups, are of four types."""
    sides = {"ab": "infiniband", "cd": "slingshot", "ac": "ethernet", "bd": "roce"}
    clusters = [
        cluster(name, 1, 1, tuple(builders.nic(kind) for ends, kind in sides.items() if name in ends)) for name in "abcd"
    ]
    trunks = tuple(Trunk((ends[0], ends[1]), kind, 1e9, 0.0) for ends, kind in sides.items())
    plan = builders.plan(fleet(*clusters, trunks=trunks), pp=2, dp=2)
    assert {group.ranks: net_name(group) for group in plan.groups} == {
        (0, 1): "IB",
        (2, 3): None,
        (0, 2): "Socket",
        (1, 3): "IB",
    }
    assert world_net_name(plan) == "Socket"


def test_pipelines_over_another_network_than_all_ranks() -> None:
    """Two fabrics that Ethernet joins: all ranks use sockets; a pipeline inside one node uses no network."""
    machines = fleet(*two("infiniband", "roce"), trunks=(joined("ethernet"),))
    across, inside = (Device("a", 0, 0), Device("b", 0, 0)), (Device("a", 0, 0), Device("a", 0, 1))
    fabric, every = (Device("a", 0, 0), Device("a", 1, 0)), (Device("a", 0, 0), Device("a", 1, 0), Device("b", 0, 0))
    assert list(other_networks(machines, [across, inside], every)) == []
    assert list(other_networks(machines, [across, fabric], every)) == [
        "groups pp over infiniband: messages use the group of all ranks, over Socket; one fabric for all ranks"
    ]
    assert list(other_networks(machines, [fabric], fabric)) == []


def test_one_vendor() -> None:
    plan = builders.plan(fleet(*two("roce", "roce", "other"), trunks=(joined("ethernet"),)), pp=2, dp=4)
    assert one_vendor(plan, (0, 1, 2, 3))
    assert one_vendor(plan, (4, 7))
    assert not one_vendor(plan, (0, 4))
    assert not one_vendor(plan, range(8))


def test_no_torch_is_imported() -> None:
    code = "import sys, holmes_sim.launching.nets; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
