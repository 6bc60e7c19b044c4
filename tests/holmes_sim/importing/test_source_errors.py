"""Sources that contradict each other, lack a fact or name something unknown are refused with one line."""

from __future__ import annotations

import json

import pytest

from holmes_sim.imported import imported
from sim.errors import HolmesError
from tests.holmes_sim.importing.sources import clusters, sample


def test_hosts_with_different_names_in_two_sources_are_reported(put, h100):
    conf = put("topology.conf", "SwitchName=s Nodes=a06-p1-dgx-02-c[01-03].site\n")
    with pytest.raises(HolmesError) as caught:
        imported([sample("ibnetdiscover-rails.txt"), conf, h100], "x")
    first, second = str(caught.value).splitlines()
    assert first.startswith("no source gives the NICs of cluster s, which has 3 nodes")
    assert second.endswith(
        ": 5 hosts that other sources do not know are left out (a08-p1-dgx-04-c01, a08-p1-dgx-04-c02, a06-p1-dgx-02-c01 ...)"
    )


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
def test_a_contradiction_is_one_line_that_names_both_sources(names, message, h100):
    with pytest.raises(HolmesError, match=message) as caught:
        imported([h100 if name == "h100.txt" else sample(name) for name in names], "x")
    assert "\n" not in str(caught.value)


def test_different_leaves_in_two_sources_are_a_contradiction(put):
    one = put("one.conf", "SwitchName=a Nodes=n[1-2]\nSwitchName=b Nodes=n[3-4]\nSwitchName=s Switches=a,b\n")
    same = put("same.conf", "SwitchName=x Nodes=n[1-2]\nSwitchName=y Nodes=n[3-4]\nSwitchName=s Switches=x,y\n")
    other = put("other.conf", "SwitchName=x Nodes=n[1-3]\nSwitchName=y Nodes=n4\nSwitchName=s Switches=x,y\n")
    node = sample("nccl_topology-mi300x.xml")
    assert clusters(one, same, node) == clusters(one, node)
    with pytest.raises(HolmesError, match=r"under one leaf|under different leaves|both under"):
        imported([one, other, node], "x")


LACKING = [
    (("slurm_conf-tree.conf",), "no source names the devices of cluster switch.3.1; sources that do: nvidia-smi -L"),
    (("nvidia_smi-a100.txt",), "no source names the devices of cluster cluster; sources that do: nvidia-smi -L"),
    (
        ("slurm_conf-tree.conf", "nccl_tests-a100-all_reduce.txt"),
        "no source gives the NICs of cluster switch.3.1, which has 32 nodes",
    ),
    (
        ("nccl_topology-mi300a.xml",),
        "'PCI device 0x1002:0x74a0' of cluster cluster is not the full name of a device",
    ),
    (
        ("topograph-graph.json",),
        "'H100' of cluster spine-a is not the full name of a device in the catalogue "
        "(h100-nvl-94gb or h100-pcie-80gb or h100-sxm5-80gb?)",
    ),
    (("nccl_topology-ndv4.xml", "nccl_tests-a100-all_reduce.txt"), "no source gives the bandwidth of the 8 infiniband NICs"),
]


@pytest.mark.parametrize(("names", "message"), LACKING, ids=range(len(LACKING)))
def test_a_missing_fact_is_reported_with_the_sources_that_give_it(names, message):
    with pytest.raises(HolmesError) as caught:
        imported([sample(name) for name in names], "x")
    first = str(caught.value).splitlines()[0]
    assert message in first
    assert "sources that do: " in first or "sources with full names: " in first


def test_a_link_that_is_not_in_the_catalogue_is_refused(put):
    matrix = "".join(f"GPU {at}: NVIDIA A100-SXM4-80GB (UUID: {at})\n" for at in range(2))
    matrix += "\tGPU0\tGPU1\nGPU0\t X \tNV5\nGPU1\tNV5\t X\n"
    with pytest.raises(
        HolmesError, match=r"m.txt:3: the catalogue has no link for a100-sxm4-80gb joined by NV5 between all pairs"
    ):
        imported([put("m.txt", matrix)], "x")


def test_an_unknown_cluster_is_refused():
    with pytest.raises(HolmesError, match=r"^no=...: no host belongs to 'no'; known: ib, leaf1, leaf2, leaf3, leaf4, roce$"):
        imported([sample("slurm_conf-two-fabrics.conf"), f"no={sample('nvidia_smi-a100.txt')}"], "x")


def test_an_invalid_host_name_is_refused(put):
    labels = {"nvidia.com/gpu.product": "Tesla-T4", "nvidia.com/gpu.count": "1"}
    listed = {"kind": "Node", "metadata": {"name": "a/b", "labels": labels}}
    with pytest.raises(HolmesError, match="'a/b' is not a name of a host"):
        imported([put("n.json", json.dumps({"apiVersion": "v1", "kind": "List", "items": [listed]}))], "x")
