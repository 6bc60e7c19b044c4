"""Clusters and fabrics out of Slurm, Topograph and ibnetdiscover, as topologies written by hand."""

from __future__ import annotations

import pytest

from holmes_sim.imported import imported
from tests.holmes_sim.importing.sources import MI300X, RTX, SAMPLES, clusters, sample


def test_two_fabrics_with_different_nodes():
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


def test_scontrol_and_topology_conf_give_the_same_clusters():
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
def test_topology_yaml_and_topology_conf_give_the_same_clusters(conf, yaml, put):
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


def test_a_tree_is_divided_at_switches_with_a_node_of_their_own():
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


def test_a_file_with_several_topologies(h100):
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
def test_a_topograph_model_and_the_response_of_its_service(name):
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


def test_nodes_without_a_switch_form_a_cluster():
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


def test_an_infiniband_fabric_with_redacted_guids(h100):
    """Descriptions of adapters name the hosts; a port of two NDR lanes carries 200 Gbit/s, as stated in the source."""
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


def test_hosts_with_different_numbers_of_ports_form_different_clusters(h100):
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


def test_hosts_that_the_scheduler_does_not_list_are_left_out(put, h100):
    conf = put("topology.conf", "SwitchName=s Nodes=a06-p1-dgx-02-c[01-03]\n")
    found = imported([sample("ibnetdiscover-rails.txt"), conf, h100], "x")
    assert [(name, cluster["nodes"]) for name, cluster in found.topology["clusters"].items()] == [("s", 3)]
    assert any("2 hosts that other sources do not know are left out (a08-p1-dgx-04-c01, a08" in line for line in found.assumed)


def test_leaves_of_different_sizes_get_the_largest_size(put):
    conf = put("t.conf", "SwitchName=a Nodes=n[1-3]\nSwitchName=b Nodes=n[4-5]\nSwitchName=s Switches=a,b\n")
    found = imported([conf, sample("nccl_topology-mi300x.xml")], "x")
    assert found.topology["clusters"]["s"]["fabric"] == {"nodes_per_leaf": 3}
    assert "cluster s: leaves of 2 to 3 nodes; 3 per leaf are assumed, in order" in found.assumed


def test_hosts_of_a_source_given_for_a_cluster_belong_to_it(put):
    """Two Slurm clusters whose switches have the same names."""
    east = put("east.conf", "SwitchName=s1 Nodes=e[1-2]\n")
    west = put("west.conf", "SwitchName=s1 Nodes=w[1-4]\n")
    given = clusters(f"east={east}", f"west={west}", sample("nccl_topology-mi300x.xml"))
    assert {name: cluster["hosts"] for name, cluster in given.items()} == {"east": ["e[1-2]"], "west": ["w[1-4]"]}


def test_a_line_of_slurm_may_continue_on_the_next(put):
    conf = put("t.conf", "SwitchName=a \\\n  Nodes=n[1-2] # two\nSwitchName=b Nodes=n3\nSwitchName=s \\\nSwitches=a,\\\nb\n")
    assert clusters(conf, sample("nccl_topology-mi300x.xml"))["s"]["hosts"] == ["n[1-3]"]


def test_oversubscription_is_that_of_the_worst_leaf(put, h100):
    fabric = (SAMPLES / "ibnetdiscover-ibsim.txt").read_text()
    one = '[8]\t"S-0000000000200003"[1]\t\t# "Spine2" lid 0 4xSDR\n'
    assert one in fabric
    found = clusters(put("ib.txt", fabric.replace(one, "")), h100)["infiniband"]["fabric"]
    assert found == {"nodes_per_leaf": 2, "oversubscription": 2.0}
