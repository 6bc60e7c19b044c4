"""The files of a launch by torchrun, written out for one plan; what NCCL has no setting for."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from typing import Any

import pytest

from holmes_sim import exporting
from holmes_sim.launching import environment, holmes_launch, hosts, megatron_groups, torch_launch
from sim.hardware.cluster import Device, Trunk
from sim.plan.plan import Plan
from tests import builders
from tests.builders import device, fleet, nic


@pytest.fixture
def uneven() -> Plan:
    """tp 1, pp 2, dp 3: ranks out of order on hosts of three, one and two of them, in two clusters joined by Ethernet."""
    spec = device(vendor="nvidia")
    nics = (
        replace(nic("infiniband", count=2), names=("mlx5_0", "mlx5_3")),
        replace(nic("ethernet"), names=("eno1",)),
    )
    ib = replace(builders.cluster("ib", 2, 4, nics, spec), hosts=("a.site", "b.site"))
    nics = (replace(nic("roce"), names=("mlx5_1",), gid_index=3), nic("ethernet", count=2))
    roce = builders.cluster("roce", 2, 2, nics, spec)
    placement = (
        Device("ib", 1, 2), Device("ib", 0, 2), Device("ib", 0, 0),
        Device("roce", 1, 1), Device("ib", 0, 1), Device("roce", 1, 0),
    )  # fmt: skip
    machines = fleet(ib, roce, trunks=(Trunk(("ib", "roce"), "ethernet", 1e9, 0.0),))
    return builders.plan(machines, pp=2, dp=3, placement=placement)


RANKS = """\
{
  "plan": "DIGEST",
  "world_size": 6,
  "unified": false,
  "hosts": [
    {"host": "b.site", "node": "ib/node1", "ranks": [0], "devices": [2], "vendor": "nvidia", "fabrics": {"infiniband-0": 2e10}},
    {"host": "a.site", "node": "ib/node0", "ranks": [2, 4, 1], "devices": [0, 1, 2], "vendor": "nvidia", "fabrics": {"infiniband-0": 2e10}},
    {"host": "roce-node1", "node": "roce/node1", "ranks": [5, 3], "devices": [0, 1], "vendor": "nvidia", "fabrics": {"roce-0": 1e10}}
  ]
}
"""  # noqa: E501

SCRIPT = """\
#!/usr/bin/env bash
# ib/node0: ranks 2, 4, 1
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$here"/env/a.site.env
python3 "$here"/holmes_launch.py --check
exec torchrun --nnodes=3 --nproc-per-node=3 --node-rank=1 --master-addr="${MASTER_ADDR:-b.site}" --master-port="${MASTER_PORT:-29500}" "$here"/holmes_launch.py "$@"
"""  # noqa: E501

ENVIRONMENTS = {
    "b.site": """\
export CUDA_VISIBLE_DEVICES='2'
export NCCL_IB_HCA='=mlx5_0,mlx5_3'
export NCCL_SOCKET_IFNAME='=eno1'
export GLOO_SOCKET_IFNAME='eno1'
export HOLMES_SCRIPT='b.site'
""",
    "a.site": """\
export NCCL_IB_HCA='=mlx5_0,mlx5_3'
export NCCL_SOCKET_IFNAME='=eno1'
export GLOO_SOCKET_IFNAME='eno1'
export HOLMES_SCRIPT='a.site'
""",
    "roce-node1": """\
export NCCL_IB_DISABLE='1'
export NCCL_SOCKET_IFNAME='=eth0,eth1'
export GLOO_SOCKET_IFNAME='eth0'
export HOLMES_SCRIPT='roce-node1'
""",
}


def test_files_of_a_plan(uneven: Plan) -> None:
    found = exporting.export(uneven, "torchrun").files
    assert sorted(found) == sorted(
        ["README.md", "plan.json", "ranks.json", "holmes_launch.py"]
        + [f"env/{host}.env" for host in ENVIRONMENTS]
        + [f"launch/{host}.sh" for host in ENVIRONMENTS]
    )
    table = json.loads(str(found["ranks.json"].content))
    expected = RANKS.replace("DIGEST", table["plan"])
    assert table == json.loads(expected)
    assert str(found["ranks.json"].content) == expected.replace("2e10", "20000000000.0").replace("1e10", "10000000000.0")
    assert found["launch/a.site.sh"].content == SCRIPT
    for host, text in ENVIRONMENTS.items():
        assert found[f"env/{host}.env"].content == text
        script = str(found[f"launch/{host}.sh"].content)
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def test_what_the_script_must_heed_is_reported(uneven: Plan) -> None:
    assumed = exporting.export(uneven, "torchrun").assumed
    assert assumed[0].startswith("The script takes its device from LOCAL_RANK")
    assert assumed[1:] == (
        "Hosts of roce are called roce-node0, roce-node1 ...: say `clusters.roce.hosts` in the topology.",
        "ethernet NICs of roce are called eth0, eth1: say `names` of that NIC in the topology.",
    )


def test_a_rank_list_of_a_host_is_in_the_order_of_its_devices(uneven: Plan) -> None:
    """So that local rank 0 has the first device that it may see."""
    for host in hosts.of_plan(uneven):
        assert [uneven.placement[rank].index for rank in host.ranks] == sorted(host.devices)


@pytest.fixture
def domains() -> Plan:
    """tp 4, dp 2 on two domains of two hosts with two devices."""
    spec = device(vendor="nvidia")
    gb = builders.cluster("gb", 2, 2, (nic("infiniband", count=2), nic("ethernet")), spec)
    return builders.plan(fleet(replace(gb, node=gb.node.joined(2))), tp=4, dp=2)


def test_hosts_of_a_domain_are_launched_one_by_one(domains: Plan) -> None:
    found = [(host.name, host.node, host.ranks, host.devices) for host in hosts.of_plan(domains)]
    assert found == [
        ("gb-node0-host0", "gb/node0", (0, 1), (0, 1)), ("gb-node0-host1", "gb/node0", (2, 3), (0, 1)),
        ("gb-node1-host0", "gb/node1", (4, 5), (0, 1)), ("gb-node1-host1", "gb/node1", (6, 7), (0, 1)),
    ]  # fmt: skip
    launch = exporting.export(domains, "torchrun")
    assert "NCCL_IB_HCA='=mlx5_0,mlx5_1'" in str(launch.files["env/gb-node1-host1.env"].content)
    assert "--nnodes=4 --nproc-per-node=2 --node-rank=3" in str(launch.files["launch/gb-node1-host1.sh"].content)
    assert any(line.startswith("The hosts of gb form NVLink domains: NCCL 2.25.2 or later") for line in launch.assumed)


def test_the_hosts_of_a_single_domain_may_still_use_their_nics(domains: Plan) -> None:
    """All groups are on NVLink; where IMEX does not run, NCCL needs the NICs."""
    alone = builders.plan(domains.fleet, tp=4)
    assert {group.nic for group in alone.groups} == {"intra_node"}
    assert environment.Environments(alone).open_kinds(hosts.of_plan(alone)[0]) == ("infiniband",)


def joined(a: tuple[str, ...], b: tuple[str, ...], trunks: tuple[str, ...], vendors: tuple[str, str] = ("nvidia",) * 2) -> Any:
    """Clusters a and b of two nodes of two devices with these NICs, and trunks of these types between them."""

    def one(name: str, kinds: tuple[str, ...], vendor: str) -> Any:
        nics = tuple(nic(kind, 1e10 if index == 0 else 5e9) for index, kind in enumerate(kinds))
        return builders.cluster(name, 2, 2, nics, device(vendor=vendor))

    links = tuple(Trunk(("a", "b"), kind, 1e9, 0.0) for kind in trunks)
    return fleet(one("a", a, vendors[0]), one("b", b, vendors[1]), trunks=links)


def test_groups_of_one_host_over_two_rdma_types_are_refused() -> None:
    """Inside a cluster InfiniBand is faster; between them there is RoCE alone."""
    both = ("infiniband", "roce", "ethernet")
    plan = builders.plan(joined(both, both, ("roce",)), pp=2, dp=4)
    assert {group.kind: group.nic for group in plan.groups} == {"dp": "infiniband", "pp": "roce"}
    assert list(environment.unsupported(plan)) == [
        "nic infiniband, roce of a/node0: NCCL has one list of RDMA devices for all groups of a process (NCCL_IB_HCA), and "
        "would join one type with the other; groups of each host on one RDMA type"
    ]
    assert list(environment.unsupported(builders.plan(joined(both, both, ("infiniband",)), pp=2, dp=4))) == []


@pytest.fixture
def three() -> Any:
    """a, c and b of two nodes of one device: a with InfiniBand and RoCE, b with RoCE as a has it, c with Ethernet alone."""
    ethernet, spec = nic("ethernet", 1e9), device(vendor="nvidia")
    infiniband = replace(nic("infiniband", 1e10), names=("mlx5_0",))
    roce = replace(nic("roce", 5e9), names=("mlx5_9",), gid_index=3)
    nics = {"a": (infiniband, roce, ethernet), "c": (ethernet,), "b": (roce, ethernet)}
    pairs = [("a", "b", "roce"), ("a", "b", "ethernet"), ("a", "c", "ethernet"), ("b", "c", "ethernet")]
    trunks = tuple(Trunk((one, other), kind, 1e9, 0.0) for one, other, kind in pairs)
    return fleet(*(builders.cluster(name, 2, 1, own, spec) for name, own in nics.items()), trunks=trunks)


def test_a_group_beyond_the_plans_keeps_to_the_list_of_its_hosts(three: Any) -> None:
    """RoCE joins the first stage with the last, but in the first NCCL may use InfiniBand alone: it would join the two."""
    plan = builders.plan(three, pp=3, dp=2)
    assert list(environment.unsupported(plan)) == []
    assert [environment.Environments(plan).of_host(host).get("NCCL_IB_HCA") for host in hosts.of_plan(plan)] == [
        "=mlx5_0", "=mlx5_0", None, None, "=mlx5_9", "=mlx5_9",
    ]  # fmt: skip
    table = json.loads(torch_launch.table(plan))
    networks = [holmes_launch.network(table, ranks) for ranks in ([0, 1], [4, 5], [0, 4], [0, 2, 4])]
    assert networks == ["IB", "IB", "Socket", "Socket"]
    assert "embd: {net_name: Socket}\n" in megatron_groups.nccl_yaml(plan)


def test_where_no_group_goes_over_rdma_the_list_has_one_type(three: Any) -> None:
    plan = builders.plan(three, dp=6)
    assert {group.transport for group in plan.groups} == {"tcp"}
    found = environment.Environments(plan).of_host(hosts.of_plan(plan)[0])
    assert found["NCCL_IB_HCA"] == "=mlx5_0"
    assert "NCCL_IB_GID_INDEX" not in found


def test_a_fabric_of_a_plug_in_is_neither_listed_nor_switched_off() -> None:
    kinds = ("slingshot", "ethernet")
    plan = builders.plan(joined(kinds, kinds, ("ethernet",)), pp=2, dp=4)
    found = environment.Environments(plan).of_host(hosts.of_plan(plan)[0])
    assert not found.keys() & {"NCCL_IB_HCA", "NCCL_IB_DISABLE"}
    assert environment.assumed(plan) == (
        "NCCL reaches slingshot by a plug-in, which must be installed and is chosen by NCCL itself.",
    )


def test_hosts_without_ethernet_are_reported() -> None:
    plan = builders.plan(joined(("infiniband",), ("infiniband",), ("infiniband",)), pp=2, dp=4)
    assert "NCCL_SOCKET_IFNAME" not in environment.Environments(plan).of_host(hosts.of_plan(plan)[0])
    names = ", ".join(cluster.name for cluster in plan.fleet.clusters)
    assert environment.assumed(plan) == (
        f"Nodes of {names} have no Ethernet NIC in the topology: NCCL and gloo choose the interface of their sockets "
        "themselves (NCCL_SOCKET_IFNAME is not set).",
    )


def test_roce_has_the_index_of_its_address(uneven: Plan) -> None:
    devices = tuple(Device("roce", node, 0) for node in range(2))
    plan = builders.plan(uneven.fleet, dp=2, placement=devices)
    found = environment.Environments(plan).of_host(hosts.of_plan(plan)[1])
    assert found == {
        "NCCL_IB_HCA": "=mlx5_1", "NCCL_IB_GID_INDEX": "3", "NCCL_SOCKET_IFNAME": "=eth0,eth1", "GLOO_SOCKET_IFNAME": "eth0",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("vendor", "name"),
    [("nvidia", "CUDA_VISIBLE_DEVICES"), ("amd", "HIP_VISIBLE_DEVICES"), ("huawei", "ASCEND_RT_VISIBLE_DEVICES")],
)
def test_devices_that_are_not_the_first_are_the_only_ones_seen(vendor: str, name: str) -> None:
    machines = joined(("roce",), ("roce",), ("roce",), (vendor, vendor))
    devices = (Device("a", 0, 1), Device("b", 0, 1), Device("b", 0, 0))
    plan = builders.plan(machines, dp=3, placement=devices)
    first, second = hosts.of_plan(plan)
    assert environment.Environments(plan).of_host(first)[name] == "1"
    assert name not in environment.Environments(plan).of_host(second)


def test_vendors_that_share_no_library_are_reported() -> None:
    kinds = ("roce", "ethernet")
    machines = joined(kinds, kinds, kinds, ("nvidia", "amd"))
    assumed = torch_launch.assumed(builders.plan(machines, dp=8))
    assert len(assumed) == 1
    assert assumed[0].startswith("Groups across amd and nvidia go over gloo, which takes tensors of devices in all_reduce and")
    unified = torch_launch.assumed(builders.plan(replace(machines, communicator="unified"), dp=8))
    assert unified == ("Groups across amd and nvidia need the unified communicator's own backend, named by the script.",)
