"""Whole topologies out of samples, written down by hand; two roads to the same fleet; contradictions and what is lacking."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holmes_sim.imported import imported
from sim.errors import HolmesError
from sim.formats import topology

SAMPLES = Path(__file__).parents[1] / "importers" / "samples"
MI300X = {
    "devices": {"type": "mi300x", "count": 8},
    "intra_node": "infinity-fabric-4",
    "nics": [
        {
            "type": "infiniband",
            "bandwidth": "400 Gbit/s",
            "count": 8,
            "names": ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_7"],
        }
    ],
}
RTX = {
    "devices": {"type": "rtx-3090", "count": 8},
    "intra_node": "pcie4",
    "nics": [{"type": "infiniband", "bandwidth": "56 Gbit/s", "count": 1, "names": ["mlx5_0"]}],
}
H100 = [f"GPU {index}: NVIDIA H100 80GB HBM3 (UUID: GPU-{index})" for index in range(8)]


def sample(name: str) -> str:
    return str(SAMPLES / name)


def clusters(*sources: str) -> dict[str, object]:
    """The clusters of a topology that its own reader takes."""
    found = imported(sources, "x")
    loaded = topology.from_document(topology.parse("x", found.text()))
    assert loaded.facts() == found.topology
    assert loaded.workload is None
    return found.topology["clusters"]


@pytest.fixture
def put(tmp_path):
    """Write a source; its path."""

    def written(name: str, text: str) -> str:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return str(path)

    return written


@pytest.fixture
def h100(put) -> str:
    """`nvidia-smi -L; nvidia-smi topo -m`."""
    return put("h100.txt", "\n".join(H100) + "\n" + (SAMPLES / "nvidia_smi-h100.txt").read_text())


def test_two_fabrics_with_a_node_of_each():
    given = clusters(
        sample("slurm_conf-two-fabrics.conf"),
        f"ib={sample('nccl_topology-mi300x.xml')}",
        f"roce={sample('nccl_topology-rtx-3090.xml')}",
    )
    assert given == {
        "ib": {"nodes": 8, "hosts": ["gpu[001-008]"], "node": MI300X, "fabric": {"nodes_per_leaf": 4}},
        "roce": {
            "nodes": 8,
            "hosts": ["gpu[009-013]", "gpu[015-016]", "gpu014"],
            "node": RTX,
            "fabric": {"nodes_per_leaf": 4},
        },
    }


def test_what_scontrol_shows_is_the_same_fleet_as_its_topology_conf():
    nodes = (f"ib={sample('nccl_topology-mi300x.xml')}", f"roce={sample('nccl_topology-rtx-3090.xml')}")
    assert clusters(sample("slurm_conf-two-fabrics-scontrol.txt"), *nodes) == clusters(
        sample("slurm_conf-two-fabrics.conf"), *nodes
    )


TREE = """\
- topology: a
  cluster_default: true
  tree:
    switches:
    - {switch: leaf1, nodes: 'gpu[001-004]'}
    - {switch: leaf2, nodes: 'gpu[005-008]'}
    - {switch: leaf3, nodes: 'gpu[009-012]'}
    - {switch: leaf4, nodes: 'gpu[013,015-016],gpu014'}
    - {switch: ib, children: 'leaf[1-2]'}
    - {switch: roce, children: 'leaf3,leaf4'}
"""
BLOCKS = """\
- topology: a
  block:
    block_sizes: [8, 16, 32]
    blocks:
    - {block: rack11, nodes: 'srv[1101-1108]'}
    - {block: rack12, nodes: 'srv[1201-1208]'}
    - {block: rack21, nodes: 'srv[2101-2108]'}
    - {block: rack22, nodes: 'srv[2201-2208]'}
"""


@pytest.mark.parametrize(("conf", "yaml"), [("slurm_conf-two-fabrics.conf", TREE), ("slurm_conf-block.conf", BLOCKS)])
def test_a_topology_yaml_is_the_same_fleet_as_the_equal_topology_conf(conf, yaml, put):
    node = sample("nccl_topology-mi300x.xml")
    assert clusters(put("topology.yaml", yaml), node) == clusters(sample(conf), node)


def test_blocks_are_leaves_of_one_fabric():
    assert clusters(sample("slurm_conf-block.conf"), sample("nccl_topology-mi300x.xml")) == {
        "blocks": {
            "nodes": 32,
            "hosts": ["srv[1101-1108]", "srv[1201-1208]", "srv[2101-2108]", "srv[2201-2208]"],
            "node": MI300X,
            "fabric": {"nodes_per_leaf": 8},
        }
    }


def test_a_tree_is_divided_where_a_node_is_given_for_a_switch_of_it():
    given = clusters(
        sample("slurm_conf-tree.conf"),
        f"switch.2.1={sample('nccl_topology-mi300x.xml')}",
        f"switch.3.1={sample('nccl_topology-rtx-3090.xml')}",
    )
    assert given == {
        "switch.2.1": {
            "nodes": 16,
            "hosts": ["srv[1101-1108]", "srv[1201-1208]"],
            "node": MI300X,
            "fabric": {"nodes_per_leaf": 8},
        },
        "switch.3.1": {
            "nodes": 16,
            "hosts": ["srv[2101-2108]", "srv[2201-2208]"],
            "node": RTX,
            "fabric": {"nodes_per_leaf": 8},
        },
    }


def test_several_topologies_of_one_file(h100):
    nics = "nccl_topology-mi300x.xml"
    given = clusters(sample("slurm_yaml-soperator.yaml"), sample(nics))
    assert [(name, cluster["nodes"], cluster["hosts"]) for name, cluster in given.items()] == [
        ("root", 32, ["cpu-[0-31]"]),
        ("blocks", 16, ["h100-[0-7]", "h200-[0-7]"]),
    ]
    assert [cluster.get("fabric") for cluster in given.values()] == [None, {"nodes_per_leaf": 8}]


def test_a_topograph_model():
    assert clusters(sample("topograph-nvl72.yaml"), sample("nccl_topology-rtx-3090.xml")) == {
        "core": {
            "nodes": 72,
            "hosts": ["node[1101-1118]", "node[1201-1218]", "node[2101-2118]", "node[2201-2218]"],
            "node": RTX,
            "fabric": {"nodes_per_leaf": 18},
        }
    }


@pytest.mark.parametrize("name", ["topograph-small-tree.yaml", "topograph-small-tree.json"])
def test_a_topograph_model_and_the_answer_of_its_service(name):
    assert clusters(sample(name), sample("nccl_topology-rtx-3090.xml")) == {
        "S1": {
            "nodes": 6,
            "hosts": ["I[21-22]", "I25", "I[34-36]"],
            "node": RTX,
            "fabric": {"nodes_per_leaf": 3},
        }
    }


def test_an_instance_of_the_graph_engine():
    assert clusters(sample("topograph-graph.json"), sample("nccl_topology-rtx-3090.xml")) == {
        "spine-a": {"nodes": 1, "hosts": ["I21"], "node": RTX}
    }


def test_nodes_that_hang_under_no_switch_are_a_cluster_of_their_own():
    given = clusters(sample("topograph-medium-h100.yaml"), sample("nccl_topology-rtx-3090.xml"))
    assert [(name, cluster["hosts"]) for name, cluster in given.items()] == [
        ("sw3", ["n11-[1-2]", "n12-[1-2]", "n13-[1-2]", "n14-[1-2]"]),
        ("cluster", ["n10-[1-2]"]),
    ]


def test_an_infiniband_fabric_of_two_leaves(h100):
    assert clusters(sample("ibnetdiscover-ibsim.txt"), h100) == {
        "infiniband": {
            "nodes": 4,
            "hosts": ["gpu[003-004]", "gpu[001-002]"],
            "node": {
                "devices": {"type": "h100-sxm5-80gb", "count": 8},
                "intra_node": "nvlink4",
                "nics": [{"type": "infiniband", "bandwidth": "10 Gbit/s", "count": 1, "names": ["mlx5_0"]}],
            },
            "fabric": {"nodes_per_leaf": 2, "oversubscription": 1.0},
        }
    }


def test_an_infiniband_fabric_whose_guids_were_taken_out_before_it_was_shown(h100):
    """Hosts are known by their adapters' descriptions; a port of two NDR lanes carries 200 Gbit/s, as the source says."""
    assert clusters(sample("ibnetdiscover-redacted.txt"), h100) == {
        "infiniband": {
            "nodes": 5,
            "hosts": ["tj01-4090-node005", "tj01-4090-node004", "tj01-4090-node[006-007]", "tj01-4090-node009"],
            "node": {
                "devices": {"type": "h100-sxm5-80gb", "count": 8},
                "intra_node": "nvlink4",
                "nics": [{"type": "infiniband", "bandwidth": "200 Gbit/s", "count": 1, "names": ["mlx5_2"]}],
            },
        }
    }


def test_rails_of_a_host_count_as_one_leaf_and_other_numbers_of_ports_are_other_nodes(h100):
    node = {"devices": {"type": "h100-sxm5-80gb", "count": 8}, "intra_node": "nvlink4"}
    assert clusters(sample("ibnetdiscover-rails.txt"), h100) == {
        "infiniband": {
            "nodes": 2,
            "hosts": ["a08-p1-dgx-04-c[01-02]"],
            "node": node | {"nics": [{"type": "infiniband", "bandwidth": "400 Gbit/s", "count": 1, "names": ["mlx5_5"]}]},
        },
        "infiniband-2": {
            "nodes": 3,
            "hosts": ["a06-p1-dgx-02-c[01-03]"],
            "node": node | {"nics": [{"type": "infiniband", "bandwidth": "400 Gbit/s", "count": 2}]},
        },
    }


def test_hosts_of_a_scheduler_leave_out_what_else_hangs_in_the_fabric(put, h100):
    conf = put("topology.conf", "SwitchName=s Nodes=a06-p1-dgx-02-c[01-03]\n")
    found = imported([sample("ibnetdiscover-rails.txt"), conf, h100], "x")
    assert [(name, cluster["nodes"]) for name, cluster in found.topology["clusters"].items()] == [("s", 3)]
    assert any("2 hosts that other sources do not know are left out (a08-p1-dgx-04-c01, a08" in line for line in found.assumed)


def test_what_lacks_because_two_sources_name_hosts_differently_is_told_with_the_names(put, h100):
    conf = put("topology.conf", "SwitchName=s Nodes=a06-p1-dgx-02-c[01-03].site\n")
    with pytest.raises(HolmesError) as caught:
        imported([sample("ibnetdiscover-rails.txt"), conf, h100], "x")
    first, second = str(caught.value).splitlines()
    assert first.startswith("no source tells the NICs of cluster s, which has 3 nodes")
    assert second.endswith(
        ": 5 hosts that other sources do not know are left out (a08-p1-dgx-04-c01, a08-p1-dgx-04-c02, a06-p1-dgx-02-c01 ...)"
    )


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
def test_labels_of_the_gpu_operator_are_a_node(name, host, node):
    assert clusters(sample(name)) == {"cluster": {"nodes": 1, "hosts": [host], "node": node}}


def test_kubernetes_nodes_by_zone_tier_and_device(put):
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


def test_ethernet_functions_carry_roce_or_tcp_and_the_gid_index_comes_from_a_run(put):
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


def test_a_run_between_hosts_gives_the_share_of_the_wire_rate(put):
    """What the largest payload has and takes more than the smallest: 9 GiB among 16 ranks in 111,812 us less 11,774 us."""
    node = put(
        "n.xml", (SAMPLES / "nccl_topology-mi300x.xml").read_text().replace("0x1002", "0x10de").replace("0x74b5", "0x20b0")
    )
    node = put("n.xml", Path(node).read_text().replace("xgmi", "nvlink").replace('count="1"', 'count="12"'))
    text = sample("nccl_tests-a100-all_reduce.txt")
    found = imported([node, text], "x").topology["clusters"]["cluster"]
    moved, taken = 2 * 15 / 16 * (10737418240 - 1073741824), 111812e-6 - 11774e-6
    assert found["nodes"] == 2
    assert found["node"]["nics"][0]["efficiency"] == pytest.approx(moved / taken / 400e9, abs=6e-4)
    assert imported([node, sample("nccl_tests-a100.json")], "x").topology["clusters"]["cluster"] == found


def test_a_run_inside_a_node_gives_the_link_in_place(put):
    rows = [(1024, 20.0), (1 << 30, 10000.0)]
    table = "# nccl-tests version 2.17\n# Collective test starting: all_gather_perf\n"
    table += "".join(f"#  Rank  {rank} Group  0 Pid  1 on here device  {rank} [0x0{rank}] NVIDIA L40S\n" for rank in range(4))
    table += "".join(
        f"  {size}  {size // 4}  float  none  -1  {time}  1.0  1.0  0  {time}  1.0  1.0  0\n" for size, time in rows
    )
    given = clusters(put("run.txt", table))["cluster"]["node"]
    assert given["devices"] == {"type": "l40s", "count": 4}
    assert given["intra_node"]["bandwidth"] == "80.69 GB/s"
    assert given["intra_node"]["efficiency"]["all_gather"] == 1.0


CONTRADICTIONS = [
    (
        ("h100.txt", "kubernetes-dgx-a100.json"),
        r"h100.txt:1: devices are h100-sxm5-80gb, but .*kubernetes-dgx-a100.json:9 has a100-sxm4-40gb",
    ),
    (
        ("nvidia_smi-a100.txt", "nvidia_smi-h100.txt"),
        r"nvidia_smi-h100.txt:1: devices of a node are joined by NV18 between all pairs, but",
    ),
    (
        ("nccl_topology-rtx-3090.xml", "nccl_topology-mi300x.xml"),
        r"mi300x.xml:4: devices are mi300x, but .*3090.xml:5 has rtx-3090",
    ),
    (
        ("ibnetdiscover-ibsim.txt", "nccl_topology-mi300x.xml"),
        r"mi300x.xml:49: infiniband NICs of a node are 8, but .*ibsim.txt:11 has 1",
    ),
    (
        ("ibnetdiscover-ibsim.txt", "nvidia_smi-a100.txt", "nccl_tests-a100-all_reduce.txt"),
        r"nccl_tests-a100-all_reduce.txt: .* GB/s between hosts, but .*ibsim.txt:11 has 1 infiniband NICs of 10 Gbit/s",
    ),
]


@pytest.mark.parametrize(("names", "message"), CONTRADICTIONS, ids=range(len(CONTRADICTIONS)))
def test_sources_that_contradict_are_one_line_that_names_both(names, message, h100):
    with pytest.raises(HolmesError, match=message) as caught:
        imported([h100 if name == "h100.txt" else sample(name) for name in names], "x")
    assert "\n" not in str(caught.value)


def test_leaves_that_two_sources_draw_differently_contradict(put):
    one = put("one.conf", "SwitchName=a Nodes=n[1-2]\nSwitchName=b Nodes=n[3-4]\nSwitchName=s Switches=a,b\n")
    same = put("same.conf", "SwitchName=x Nodes=n[1-2]\nSwitchName=y Nodes=n[3-4]\nSwitchName=s Switches=x,y\n")
    other = put("other.conf", "SwitchName=x Nodes=n[1-3]\nSwitchName=y Nodes=n4\nSwitchName=s Switches=x,y\n")
    node = sample("nccl_topology-mi300x.xml")
    assert clusters(one, same, node) == clusters(one, node)
    with pytest.raises(HolmesError, match=r"under one leaf|under different leaves|both under"):
        imported([one, other, node], "x")


LACKING = [
    (("slurm_conf-tree.conf",), "no source tells the devices of cluster switch.3.1; nvidia-smi -L"),
    (("nvidia_smi-a100.txt",), "no source tells the devices of cluster cluster; nvidia-smi -L"),
    (
        ("slurm_conf-tree.conf", "nccl_tests-a100-all_reduce.txt"),
        "no source tells the NICs of cluster switch.3.1, which has 32 nodes",
    ),
    (("nccl_topology-mi300a.xml",), "'PCI device 0x1002:0x74a0' of cluster cluster is no device that the catalogue has"),
    (("topograph-graph.json",), "'H100' of cluster spine-a is no device that the catalogue has, or no full name of one"),
    (("nccl_topology-ndv4.xml", "nccl_tests-a100-all_reduce.txt"), "no source tells the bandwidth of the 8 infiniband NICs"),
]


@pytest.mark.parametrize(("names", "message"), LACKING, ids=range(len(LACKING)))
def test_what_cannot_be_assumed_is_told_with_the_source_that_would_tell_it(names, message):
    with pytest.raises(HolmesError) as caught:
        imported([sample(name) for name in names], "x")
    first = str(caught.value).splitlines()[0]
    assert message in first
    assert "would" in first or "full names are told by" in first


def test_a_link_that_the_catalogue_lacks_is_not_invented(put):
    matrix = "".join(f"GPU {at}: NVIDIA A100-SXM4-80GB (UUID: {at})\n" for at in range(2))
    matrix += "\tGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\tNV4\t X\n"
    with pytest.raises(
        HolmesError, match=r"m.txt:3: the catalogue has no link that joins a100-sxm4-80gb by NV4 between all pairs"
    ):
        imported([put("m.txt", matrix)], "x")


def test_bridges_of_some_pairs_are_left_to_pcie(put):
    matrix = "".join(f"GPU {at}: NVIDIA GeForce RTX 3090 (UUID: {at})\n" for at in range(3)) + "\tGPU0\tGPU1\tGPU2\n"
    matrix += "GPU0\t X \tNV4\tPHB\nGPU1\tNV4\t X \tPHB\nGPU2\tPHB\tPHB\t X\n"
    found = imported([put("m.txt", matrix)], "x")
    assert found.topology["clusters"]["cluster"]["node"]["intra_node"] == "pcie4"
    assert any("NV4 between some pairs" in line for line in found.assumed)


def test_underlined_headers_and_rdma_names(put):
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
    would = "NCCL's topology XML (NCCL_TOPO_DUMP_FILE) or ibnetdiscover would tell"
    assert found.missing == (f"of which type mlx5_3, mlx5_4 are ({path}:3); {would}",)


def test_names_of_nvidia_smi_are_those_of_as_many_nics_that_another_source_tells(put):
    """ibnetdiscover knows that there is one adapter, and calls it HCA-1; nvidia-smi knows its name."""
    fabric = (SAMPLES / "ibnetdiscover-ibsim.txt").read_text().replace("mlx5_0", "HCA-1")
    matrix = "".join(f"GPU {at}: NVIDIA H200 (UUID: {at})\n" for at in range(2))
    matrix += "\tGPU0\tGPU1\tNIC0\nGPU0\t X \tNV18\tPIX\nGPU1\tNV18\t X \tSYS\nNIC0\tPIX\tSYS\t X\n\n  NIC0: mlx5_7\n"
    given = clusters(put("ib.txt", fabric), put("m.txt", matrix))["infiniband"]["node"]["nics"]
    assert given == [{"type": "infiniband", "bandwidth": "10 Gbit/s", "count": 1, "names": ["mlx5_7"]}]


def test_a_cluster_that_nobody_knows_is_told():
    with pytest.raises(HolmesError, match=r"^no=...: no host stands under 'no'; known: ib, leaf1, leaf2, leaf3, leaf4, roce$"):
        imported([sample("slurm_conf-two-fabrics.conf"), f"no={sample('nvidia_smi-a100.txt')}"], "x")


def test_leaves_of_unlike_sizes_are_taken_for_the_largest(put):
    conf = put("t.conf", "SwitchName=a Nodes=n[1-3]\nSwitchName=b Nodes=n[4-5]\nSwitchName=s Switches=a,b\n")
    found = imported([conf, sample("nccl_topology-mi300x.xml")], "x")
    assert found.topology["clusters"]["s"]["fabric"] == {"nodes_per_leaf": 3}
    assert "cluster s: leaves of 2 to 3 nodes; taken as 3 each, in order" in found.assumed


def test_hosts_of_a_source_that_is_given_for_a_cluster_stand_under_it(put):
    """Two Slurm clusters whose switches are called alike."""
    east = put("east.conf", "SwitchName=s1 Nodes=e[1-2]\n")
    west = put("west.conf", "SwitchName=s1 Nodes=w[1-4]\n")
    given = clusters(f"east={east}", f"west={west}", sample("nccl_topology-mi300x.xml"))
    assert {name: cluster["hosts"] for name, cluster in given.items()} == {"east": ["e[1-2]"], "west": ["w[1-4]"]}


def test_a_dump_of_several_hosts_is_of_one(put):
    """NVLink between hosts puts several into one dump: four devices a host, not eight."""
    links = '<nvlink target="s" count="18" tclass="0x068000"/>'
    gpus = "".join(f'<pci busid="{at}" vendor="0x10de" device="0x2901"><gpu>{links}</gpu></pci>' for at in range(4))
    hosts = "".join(f'<cpu host_hash="{host}">{gpus}</cpu>' for host in "ab")
    assert clusters(put("n.xml", f'<system version="1">{hosts}</system>'))["cluster"]["node"] == {
        "devices": {"type": "b200-sxm-180gb", "count": 4},
        "intra_node": "nvlink5",
    }


def test_a_line_of_slurm_may_go_on_in_the_next(put):
    conf = put("t.conf", "SwitchName=a \\\n  Nodes=n[1-2] # two\nSwitchName=b Nodes=n3\nSwitchName=s \\\nSwitches=a,\\\nb\n")
    assert clusters(conf, sample("nccl_topology-mi300x.xml"))["s"]["hosts"] == ["n[1-3]"]


def test_hosts_are_written_leaf_by_leaf(put):
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


def test_oversubscription_is_that_of_the_worst_leaf(put, h100):
    fabric = (SAMPLES / "ibnetdiscover-ibsim.txt").read_text()
    one = '[8]\t"S-0000000000200003"[1]\t\t# "Spine2" lid 0 4xSDR\n'
    assert one in fabric
    found = clusters(put("ib.txt", fabric.replace(one, "")), h100)["infiniband"]["fabric"]
    assert found == {"nodes_per_leaf": 2, "oversubscription": 2.0}


def run_of(operation: str, seconds: float, ranks: int = 4) -> str:
    """A run between two hosts: a byte in no time, 1,000 MB in some."""
    text = f"# Collective test starting: {operation}_perf\n"
    for at in range(ranks):
        text += f"#  Rank  {at} Pid  1 on pod-{at * 2 // ranks} device  {at} [0x0{at}] NVIDIA H100 80GB HBM3\n"
    rows = ((1, 1e-3), (1000000000, seconds * 1e6))
    return text + "".join(f"  {size}  1  float  none  -1  {time}  1  1  0  {time}  1  1  0\n" for size, time in rows)


def nodes_of(put, count: int) -> str:
    nets = "".join(f'<net name="mlx5_{at}" speed="400000" port="1"/>' for at in range(count))
    return put("nics.xml", f'<system version="1"><pci class="0x020700">{nets}</pci></system>')


def test_of_several_operations_the_middle_one_counts(put, h100):
    """Bytes through a port: 1.5 GB of an all_reduce, 0.75 GB of the others; the NICs carry 100 GB/s."""
    runs = [put(f"{name}.txt", run_of(name, seconds)) for name, seconds in
            (("all_reduce", 1.5 / 90), ("all_gather", 0.75 / 60), ("reduce_scatter", 0.75 / 50))]  # fmt: skip
    given = clusters(h100, nodes_of(put, 2), *runs)["cluster"]["node"]
    assert given["nics"][0]["efficiency"] == 0.6
    assert given["devices"] == {"type": "h100-sxm5-80gb", "count": 8}


def test_more_than_the_wire_carries_is_taken_for_all_of_it(put, h100):
    found = imported([h100, nodes_of(put, 2), put("all_reduce.txt", run_of("all_reduce", 1.5 / 130))], "x")
    assert found.topology["clusters"]["cluster"]["node"]["nics"][0]["efficiency"] == 1.0
    assert any("efficiency 1, not 1.3: busbw counts a ring's bytes" in line for line in found.assumed)


def test_a_run_alone_tells_how_many_devices_it_used_at_least(put):
    found = imported([nodes_of(put, 2), put("all_reduce.txt", run_of("all_reduce", 1.5 / 90))], "x")
    assert found.topology["clusters"]["cluster"]["node"]["devices"] == {"type": "h100-sxm5-80gb", "count": 2}
    assert any("a node has the 2 devices that the run of" in line for line in found.assumed)


def test_names_that_a_topology_cannot_bear_are_told(put):
    labels = {"nvidia.com/gpu.product": "Tesla-T4", "nvidia.com/gpu.count": "1"}
    listed = {"kind": "Node", "metadata": {"name": "a/b", "labels": labels}}
    with pytest.raises(HolmesError, match="'a/b' is no name of a host"):
        imported([put("n.json", json.dumps({"apiVersion": "v1", "kind": "List", "items": [listed]}))], "x")


def test_an_nvlink_that_only_some_pairs_of_a_switched_board_have_is_no_nvlink_of_the_board(put):
    matrix = "".join(f"GPU {at}: NVIDIA H100 80GB HBM3 (UUID: {at})\n" for at in range(3)) + "\tGPU0\tGPU1\tGPU2\n"
    matrix += "GPU0\t X \tNV18\tSYS\nGPU1\tNV18\t X \tSYS\nGPU2\tSYS\tSYS\t X\n"
    assert clusters(put("m.txt", matrix))["cluster"]["node"]["intra_node"] == "pcie5"
