"""A topology file becomes a fleet and a workload: catalogue names, facts in place, prices, hosts and NIC names."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim.formats import catalog
from sim.formats.documents import read_text
from sim.formats.topology import load, workload_facts
from sim.hardware.cluster import Cluster, Fabric, Fleet, Nic, Node, Trunk
from sim.hardware.link_spec import Protocol
from sim.hardware.stack import DEFAULT
from sim.units import MICRO
from sim.workload.model import Model
from sim.workload.workload import Workload
from tests.sim.formats.topology_texts import DEVICE, INTERCONNECT, NICS, SHAPE, TOPOLOGY, changed, read

SHIPPED = sorted((Path(__file__).parents[3] / "topologies").rglob("*.yaml"))

HOSTS = """intra_node: nvlink3
      host_memory: 512 GiB
      host_memory_bandwidth: 400 GB/s"""


def test_a_topology_becomes_a_fleet_and_a_workload(tmp_path: Path) -> None:
    (tmp_path / "topo.yaml").write_text(TOPOLOGY)
    topology = load(tmp_path / "topo.yaml")
    ethernet, infiniband, roce = (catalog.nic(kind) for kind in ("ethernet", "infiniband", "roce"))
    a100 = Node(
        catalog.device("a100-sxm4-80gb"), 8, catalog.link("nvlink3"), (Nic(infiniband, 25e9, 4), Nic(ethernet, 3.125e9, 1))
    )
    h100 = Node(catalog.device("h100-sxm5-80gb"), 4, catalog.link("nvlink4"), (Nic(roce, 12.5e9, 2), Nic(ethernet, 1.25e9, 1)))
    assert topology.fleet == Fleet(
        "tiny",
        (Cluster("ib", 2, a100, Fabric(16, 2.0)), Cluster("roce", 3, h100, None)),
        (Trunk(("ib", "roce"), "ethernet", 12.5e9, 50 * MICRO),),
        "vendor",
    )
    assert topology.workload == Workload(catalog.model("gpt-3.6b"), 768, 2048, "fp16")
    assert (topology.name, topology.source) == ("tiny", "written for a test")


def test_a_fleet_counts_its_devices(tmp_path: Path) -> None:
    assert read(tmp_path, TOPOLOGY).devices == 2 * 8 + 3 * 4


def test_a_topology_needs_no_workload(tmp_path: Path) -> None:
    (tmp_path / "topo.yaml").write_text(TOPOLOGY[: TOPOLOGY.index("workload:")])
    assert load(tmp_path / "topo.yaml").workload is None


def test_a_device_may_be_given_by_its_facts(tmp_path: Path) -> None:
    device = read(tmp_path, changed(("a100-sxm4-80gb", DEVICE))).cluster("ib").node.device
    assert (device.name, device.vendor, device.compute_units, device.watts) == ("device", "acme", 4, 300.0)
    assert device.peak == (("bf16", 2e12), ("fp16", 1e12))
    assert (device.memory, device.memory_bandwidth, device.host_bandwidth) == (2**30, 3e9, 1e9)
    curve = (device.gemm.launch, device.gemm.compute_efficiency, device.gemm.memory_efficiency)
    assert curve == pytest.approx((0.0, 0.5 * DEFAULT.gemm, 1.0 * DEFAULT.gemm))
    assert (device.launch, device.step) == (DEFAULT.launch, DEFAULT.step)
    shares = (device.attention.forward, device.attention.backward, device.elementwise_efficiency)
    assert shares == pytest.approx((0.25 * DEFAULT.attention, 0.2 * DEFAULT.attention, 0.75 * DEFAULT.elementwise))


def test_a_price_is_read_beside_the_type_or_in_the_facts_of_a_device(tmp_path: Path) -> None:
    priced = DEVICE.replace("watts: 300 W", "watts: 300 W, idle_watts: 60 W, price: 3.60 USD/h")
    inside = read(tmp_path, changed(("a100-sxm4-80gb", priced))).cluster("ib").node.device
    assert (inside.price, inside.watts, inside.idle_watts) == (pytest.approx(0.001), 300.0, 60.0)
    beside = read(tmp_path, changed(("a100-sxm4-80gb, count: 8", "a100-sxm4-80gb, count: 8, price: 7.20 USD/h")))
    assert [c.node.device.price for c in beside.clusters] == [pytest.approx(0.002), None]
    both = read(tmp_path, changed(("a100-sxm4-80gb, count: 8", f"{priced}, count: 8, price: 7.20 USD/h")))
    assert both.cluster("ib").node.device.price == pytest.approx(0.002)


def test_memory_of_the_hosts_is_shared_by_their_devices(tmp_path: Path) -> None:
    ib, roce = read(tmp_path, changed(("intra_node: nvlink3", HOSTS))).clusters
    assert (ib.node.host_memory, ib.node.device.host_memory_bandwidth) == (512 * 2**30, pytest.approx(400e9 / 8))
    assert (roce.node.host_memory, roce.node.device.host_memory_bandwidth) == (None, None)


def test_an_interconnect_may_be_given_by_its_facts(tmp_path: Path) -> None:
    link = read(tmp_path, changed(("nvlink3", INTERCONNECT))).cluster("ib").node.intra_node
    assert (link.bandwidth, link.pair_bandwidth, link.latency, link.overhead, link.interference) == (2e9, 1e9, 1e-6, 2e-6, 0.1)
    assert [share / DEFAULT.communication for _, share in link.efficiency] == pytest.approx([0.9, 0.8, 0.7, 0.6, 0.5])


def test_facts_of_an_interconnect_may_have_protocols_and_group_bandwidths(tmp_path: Path) -> None:
    more = (
        "protocols: [{name: LL, overhead: 1 us, latency: 2 us, share: 0.5}, "
        "{name: NVLS, overhead: 3 us, latency: 0 us, share: 0.8, in_switch: true}], "
        "own_piece: 0.4, group_bandwidth: [{devices: 2, bandwidth: 1 GB/s}], "
    )
    link = read(tmp_path, changed(("nvlink3", INTERCONNECT), ("interference", more + "interference")))
    spec = link.cluster("ib").node.intra_node
    assert spec.protocols == (
        Protocol("LL", pytest.approx(1e-6), pytest.approx(2e-6), 0.5),
        Protocol("NVLS", pytest.approx(3e-6), 0.0, 0.8, in_switch=True),
    )
    assert (spec.own_piece, spec.group_bandwidth) == (0.4, ((2, 1e9),))


def test_a_model_may_be_given_by_its_shape(tmp_path: Path) -> None:
    (tmp_path / "topo.yaml").write_text(changed(("gpt-3.6b", SHAPE)))
    workload = load(tmp_path / "topo.yaml").workload
    assert workload is not None
    assert workload.model == Model("model", 2, 64, 8, 8, 256, 512)


def test_facts_of_a_workload_are_read_back_unchanged(tmp_path: Path) -> None:
    (tmp_path / "topo.yaml").write_text(TOPOLOGY)
    workload = load(tmp_path / "topo.yaml").workload
    assert workload is not None
    (tmp_path / "topo.yaml").write_text(TOPOLOGY[: TOPOLOGY.index("workload:")] + f"workload: {workload_facts(workload)}\n")
    assert load(tmp_path / "topo.yaml").workload == workload


@pytest.mark.parametrize("file", SHIPPED, ids=[file.stem for file in SHIPPED])
def test_every_shipped_topology_loads_with_its_workload_and_its_source(file: Path) -> None:
    topology = load(file)
    assert topology.name == file.stem
    assert topology.workload is not None
    assert topology.source


def test_topologies_are_shipped() -> None:
    assert len(SHIPPED) >= 15


def test_hosts_and_nics_may_have_names(tmp_path: Path) -> None:
    named = changed(
        ("    nodes: 2\n", "    nodes: 2\n    hosts: gpu[09-10]\n"),
        ("    nodes: 3\n", "    nodes: 3\n    hosts: [a, 'b[1-2].site']\n"),
        ("count: 4}", "count: 4, names: ['mlx5_0:1', mlx5_1, mlx5_2, mlx5_3]}"),
        ("100 Gbit/s, count: 2}", "100 Gbit/s, count: 2, names: [r0, r1], gid_index: 3}"),
    )
    fleet = read(tmp_path, named)
    assert [cluster.hosts for cluster in fleet.clusters] == [("gpu09", "gpu10"), ("a", "b1.site", "b2.site")]
    nics = [nic for cluster in fleet.clusters for nic in cluster.node.nics]
    assert [nic.names for nic in nics] == [("mlx5_0:1", "mlx5_1", "mlx5_2", "mlx5_3"), (), ("r0", "r1"), ()]
    assert [nic.gid_index for nic in nics] == [None, None, 3, None]
    assert fleet == read(tmp_path, TOPOLOGY)


def test_a_single_node_needs_no_nics(tmp_path: Path) -> None:
    text = changed(("nodes: 2", "nodes: 1"), (NICS, ""), (TOPOLOGY[TOPOLOGY.index("links:") : TOPOLOGY.index("workload:")], ""))
    assert read(tmp_path, text).cluster("ib").node.nics == ()


def test_a_domain_of_several_nodes_is_one_node_of_the_model(tmp_path: Path) -> None:
    text = changed(("    nodes: 2\n", "    nodes: 4\n    nvlink_domain: 16\n    hosts: gpu[1-4]\n"))
    ib = read(tmp_path, text).cluster("ib")
    assert (ib.nodes, ib.node.count, ib.node.hosts, [nic.count for nic in ib.node.nics]) == (2, 16, 2, [8, 2])
    assert ib.fabric is not None and ib.fabric.nodes_per_leaf == 8  # 16 nodes
    assert (ib.hosts_of(1), ib.node.inside) == (("gpu3", "gpu4"), "nvlink3, domains of 16")


def test_a_domain_of_the_devices_of_a_node_changes_nothing(tmp_path: Path) -> None:
    text = changed(("    nodes: 2\n", "    nodes: 2\n    nvlink_domain: 8\n"))
    assert read(tmp_path, text) == read(tmp_path, TOPOLOGY)


def test_a_single_domain_needs_no_nics(tmp_path: Path) -> None:
    links = TOPOLOGY[TOPOLOGY.index("links:") : TOPOLOGY.index("workload:")]
    text = changed(("    nodes: 2\n", "    nodes: 2\n    nvlink_domain: 16\n"), (NICS, ""), (links, ""))
    assert read(tmp_path, text).cluster("ib").node.nics == ()


def test_a_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    file = tmp_path / "marked.yaml"
    file.write_text(TOPOLOGY, encoding="utf-8-sig")
    assert read_text(file) == TOPOLOGY
