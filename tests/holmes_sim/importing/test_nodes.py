"""Devices, links and NICs of a node out of nvidia-smi, Kubernetes labels and NCCL topology files."""

from __future__ import annotations

import json

import pytest

from holmes_sim.imported import imported
from holmes_sim.importers import nvidia_smi
from holmes_sim.importing import nodes
from holmes_sim.importing.facts import Host, Nics
from holmes_sim.importing.groups import Group
from sim.errors import HolmesError
from sim.formats import catalog
from tests.holmes_sim.importing.sources import SAMPLES, clusters, sample


def test_one_node_of_nvidia_smi_and_one_of_kubernetes(h100):
    assert clusters(h100) == {
        "cluster": {"nodes": 1, "node": {"devices": {"type": "h100-sxm5-80gb", "count": 8}, "intra_node": "nvlink4"}}
    }
    assert clusters(sample("kubernetes-dgx-a100.json")) == {
        "cluster": {
            "nodes": 1,
            "hosts": ["dgx"],
            "node": {"devices": {"type": "a100-sxm4-40gb", "count": 1}, "intra_node": "nvlink3"},
        }
    }


@pytest.mark.parametrize(
    ("name", "host", "node"),
    [
        (
            "kubernetes-gce-a100.json",
            "pramarao-a100-mig-k8s",
            {"devices": {"type": "a100-sxm4-40gb", "count": 1}, "intra_node": "nvlink3"},
        ),
        (
            "kubernetes-h100.json",
            "xe9680",
            {"devices": {"type": "h100-sxm5-80gb", "count": 8}, "intra_node": "nvlink4"},
        ),
    ],
)
def test_labels_of_the_gpu_operator_describe_a_node(name, host, node):
    assert clusters(sample(name)) == {"cluster": {"nodes": 1, "hosts": [host], "node": node}}


def test_kubernetes_nodes_are_grouped_by_zone_tier_and_device(put):
    def node(name: str, product: str, **labels: str) -> dict[str, object]:
        own = {"nvidia.com/gpu.product": product, "nvidia.com/gpu.count": "8"} | labels
        return {"kind": "Node", "metadata": {"name": name, "labels": own}}

    tier, zone = "fabric.topograph.run/tier-", "topology.kubernetes.io/zone"
    items = [
        node("a1", "NVIDIA-A100-SXM4-80GB", **{tier + "0": "l1", tier + "1": "east", zone: "z"}),
        node("a2", "NVIDIA-A100-SXM4-80GB", **{tier + "0": "l2", tier + "1": "east", zone: "z"}),
        node("b1", "NVIDIA-A100-SXM4-80GB", **{zone: "west"}),
        node("b2", "NVIDIA-H100-80GB-HBM3", **{zone: "west"}),
        {"kind": "Node", "metadata": {"name": "login"}},
    ]
    listed = put("nodes.json", json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    nics = put("nics.xml", (SAMPLES / "nccl_topology-ndv4.xml").read_text().replace("/>", ' vendor="x"/>'))
    with pytest.raises(HolmesError, match="bandwidth of the 8 infiniband NICs of cluster east"):
        imported([listed, nics], "x")
    found = imported([put("one.json", json.dumps({"apiVersion": "v1", "kind": "List", "items": items[2:]}))], "x")
    assert {name: cluster["node"] for name, cluster in found.topology["clusters"].items()} == {
        "west-a100-sxm4-80gb": {"devices": {"type": "a100-sxm4-80gb", "count": 8}, "intra_node": "nvlink3"},
        "west-h100-sxm5-80gb": {"devices": {"type": "h100-sxm5-80gb", "count": 8}, "intra_node": "nvlink4"},
    }
    assert any("1 nodes without devices are left out" in line for line in found.assumed)
    assert any("links between the clusters" in line for line in found.missing)


ROCE = """\
<system version="1"><cpu numaid="0">
<pci busid="1" class="0x030200" vendor="0x10de" device="0x20b0">
<gpu dev="0"><nvlink target="s" count="12" tclass="0x068000"/></gpu></pci>
<pci busid="2" class="0x030200" vendor="0x10de" device="0x20b0">
<gpu dev="1"><nvlink target="s" count="12" tclass="0x068000"/></gpu></pci>
<pci busid="3" class="0x020000" vendor="0x15b3"><nic><net name="mlx5_0" speed="800000" port="1"/>
<net name="mlx5_1" speed="800000" port="1"/><net name="mlx5_9" speed="25000" port="1"/></nic></pci>
<pci busid="4" class="0x020000" vendor="0x8086"><nic><net name="eth0" speed="25000" port="0"/></nic></pci>
</cpu></system>
"""


def test_ethernet_ports_are_roce_or_plain_ethernet(put):
    report = json.loads((SAMPLES / "nccl_tests-a100.json").read_text())
    report["config"]["devices"] = [row for row in report["config"]["devices"] if row["device"] < 2]
    found = imported([put("n.xml", ROCE), put("all_reduce.json", json.dumps(report))], "x")
    nics = found.topology["clusters"]["cluster"]["node"]["nics"]
    assert [nic | {"efficiency": None} for nic in nics] == [
        {
            "type": "roce",
            "bandwidth": "800 Gbit/s",
            "count": 2,
            "names": ["mlx5_0", "mlx5_1"],
            "gid_index": 3,
            "efficiency": None,
        },
        {"type": "ethernet", "bandwidth": "25 Gbit/s", "count": 1, "names": ["eth0"], "efficiency": None},
    ]
    assert found.topology["clusters"]["cluster"]["node"]["intra_node"] == "nvlink3"
    assert any("left out: mlx5_9" in line for line in found.assumed)


def test_nvlink_bridges_between_some_pairs_are_ignored(put):
    matrix = "".join(f"GPU {at}: NVIDIA GeForce RTX 3090 (UUID: {at})\n" for at in range(3)) + "\tGPU0\tGPU1\tGPU2\n"
    matrix += "GPU0\t X \tNV4\tPHB\nGPU1\tNV4\t X \tPHB\nGPU2\tPHB\tPHB\t X\n"
    found = imported([put("m.txt", matrix)], "x")
    assert found.topology["clusters"]["cluster"]["node"]["intra_node"] == "pcie4"
    assert any("NV4 between some pairs" in line for line in found.assumed)


def test_underlined_headers_of_nvidia_smi_are_read(put):
    matrix = "".join(f"GPU {at}: NVIDIA H200 (UUID: {at})\n" for at in range(2))
    matrix += "\t\x1b[4mGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\x1b[0m\n"
    matrix += "GPU0\t X \tNV18\tPIX\tSYS\t0-63\nGPU1\tNV18\t X \tSYS\tPIX\t0-63\n"
    matrix += "NIC0\tPIX\tSYS\t X \tSYS\nNIC1\tSYS\tPIX\tSYS\t X\n\nNIC Legend:\n\n  NIC0: mlx5_3\n  NIC1: mlx5_4\n"
    path = put("m.txt", matrix)
    found = imported([path], "x")
    assert found.topology["clusters"]["cluster"]["node"] == {
        "devices": {"type": "h200-sxm-141gb", "count": 2},
        "intra_node": "nvlink4",
    }
    sources = "sources that give it: ibstat, NCCL's topology XML (NCCL_TOPO_DUMP_FILE) or ibnetdiscover"
    assert found.missing == (f"the type of mlx5_3, mlx5_4 ({path}:3); {sources}",)


def test_nics_of_another_source_get_their_names_from_nvidia_smi(put):
    """ibnetdiscover lists one adapter, named HCA-1; nvidia-smi gives its name on the host."""
    fabric = (SAMPLES / "ibnetdiscover-ibsim.txt").read_text().replace("mlx5_0", "HCA-1")
    matrix = "".join(f"GPU {at}: NVIDIA H200 (UUID: {at})\n" for at in range(2))
    matrix += "\tGPU0\tGPU1\tNIC0\nGPU0\t X \tNV18\tPIX\nGPU1\tNV18\t X \tSYS\nNIC0\tPIX\tSYS\t X\n\n  NIC0: mlx5_7\n"
    given = clusters(put("ib.txt", fabric), put("m.txt", matrix))["infiniband"]["node"]["nics"]
    assert given == [{"type": "infiniband", "bandwidth": "10 Gbit/s", "count": 1, "names": ["mlx5_7"]}]


def test_a_dump_of_several_hosts_describes_one_node(put):
    """With NVLink between hosts a dump has several hosts: four devices per host, not eight."""
    links = '<nvlink target="s" count="18" tclass="0x068000"/>'
    gpus = "".join(f'<pci busid="{at}" vendor="0x10de" device="0x2901"><gpu>{links}</gpu></pci>' for at in range(4))
    hosts = "".join(f'<cpu host_hash="{host}">{gpus}</cpu>' for host in "ab")
    assert clusters(put("n.xml", f'<system version="1">{hosts}</system>'))["cluster"]["node"] == {
        "devices": {"type": "b200-sxm-180gb", "count": 4},
        "intra_node": "nvlink5",
    }


def test_hosts_are_listed_leaf_by_leaf(put):
    def node(name: str, leaf: str) -> dict[str, object]:
        labels = {"nvidia.com/gpu.product": "NVIDIA-L40S", "nvidia.com/gpu.count": "4"}
        tiers = {"network.topology.nvidia.com/leaf": leaf, "network.topology.nvidia.com/spine": "s"}
        return {"kind": "Node", "metadata": {"name": name, "labels": labels | tiers}}

    items = [node("a1", "x"), node("a2", "y"), node("a3", "x"), node("a4", "y")]
    listed = put("nodes.json", json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    nics = put("n.xml", '<system version="1"><pci class="0x020700"><net name="mlx5_0" speed="100000"/></pci></system>')
    assert clusters(listed, nics) == {
        "s": {
            "nodes": 4,
            "hosts": ["a1", "a3", "a2", "a4"],
            "node": {
                "devices": {"type": "l40s", "count": 4},
                "intra_node": "pcie4",
                "nics": [{"type": "infiniband", "bandwidth": "100 Gbit/s", "count": 1, "names": ["mlx5_0"]}],
            },
            "fabric": {"nodes_per_leaf": 2},
        }
    }


def test_nvlink_between_some_pairs_of_a_switched_board_is_ignored(put):
    matrix = "".join(f"GPU {at}: NVIDIA H100 80GB HBM3 (UUID: {at})\n" for at in range(3)) + "\tGPU0\tGPU1\tGPU2\n"
    matrix += "GPU0\t X \tNV18\tSYS\nGPU1\tNV18\t X \tSYS\nGPU2\tSYS\tSYS\t X\n"
    assert clusters(put("m.txt", matrix))["cluster"]["node"]["intra_node"] == "pcie5"


def _mesh(name: str, links: int) -> str:
    """What `nvidia-smi -L; nvidia-smi topo -m` print of four devices that are joined pair by pair, with two adapters."""
    lines = [f"GPU {at}: NVIDIA {name} (UUID: {at})" for at in range(4)] + ["\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1"]
    for at in range(4):
        lines.append("\t".join([f"GPU{at}", *("X" if other == at else f"NV{links}" for other in range(4)), "PXB", "SYS"]))
    return "\n".join([*lines, "", "NIC Legend:", "", "  NIC0: mlx5_2", "  NIC1: mlx5_3", ""])


@pytest.mark.parametrize(
    ("name", "links", "link", "port", "pair"),
    [
        ("A100-SXM4-40GB", 4, "nvlink3-a100x4", 300e9, 100e9),
        ("H100 80GB HBM3", 6, "nvlink4-gh200x4", 450e9, 150e9),
        ("H200", 6, "nvlink4-gh200x4", 450e9, 150e9),
    ],
)
def test_boards_of_four_are_a_mesh_without_a_switch(put, name, links, link, port, pair):
    """12 links of an A100 and 18 of a Hopper, of 25 GB/s each, are divided among three peers."""
    assert clusters(put("m.txt", _mesh(name, links)))["cluster"]["node"]["intra_node"] == link
    spec = catalog.link(link)
    assert (spec.bandwidth, spec.pair_bandwidth) == (port, pair)


def test_guessed_nics_are_as_many_as_a_source_names(put):
    facts = nvidia_smi.read(_mesh("A100-SXM4-40GB", 4), "m.txt")
    group, notes = Group("c", "c", tuple(Host(name, "m.txt") for name in ("a", "b", "c")), facts.parts), nodes.ImportNotes()
    found = nodes.nics(group, notes, Nics("guess", "infiniband", 25e9, 4))
    assert found == [Nics("guess", "infiniband", 25e9, 2, ("mlx5_2", "mlx5_3"))]
    assert notes.origins["clusters", "c", "node", "nics", 0] == "number and names read from m.txt:5; guess: type and rate"
    assert nodes.nics(group, nodes.ImportNotes(), Nics("guess", "ethernet", 25e9, 1))[0].count == 1
