# ruff: noqa: E501 - a fault and its line stand side by side
"""A fault of a topology file is one line with its place, its value and what would be right."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim.errors import TopologyError
from sim.formats.topology import load
from tests.sim.formats.topology_texts import DEVICE, INTERCONNECT, NICS, SHAPE, TOPOLOGY, changed, faults


def test_idle_watts_above_watts_are_refused(tmp_path: Path) -> None:
    for watts, limit in (("watts: 300 W, idle_watts: 301 W", "are 300 W"), ("idle_watts: 301 W", "are not given")):
        (line,) = faults(tmp_path, changed(("a100-sxm4-80gb", DEVICE.replace("watts: 300 W", watts))))
        assert line == f"topo.yaml:8: clusters.ib.node.devices.type: idle_watts 301 W must not exceed watts, which {limit}"


def test_a_domain_needs_a_switch(tmp_path: Path) -> None:
    said = "clusters.ib.nvlink_domain: intra_node has no switch between all devices, only inside a node; use a link such as nvlink5"
    for link in ("nvlink2", INTERCONNECT):
        text = changed(("    nodes: 2\n", "    nodes: 2\n    nvlink_domain: 16\n"), ("nvlink3", link))
        assert faults(tmp_path, text) == [f"topo.yaml:7: {said}"]


ONE_LINE = [
    # unknown keys and names
    ("oversubscription: 2", "oversubscription: 2, spines: 4", "13: clusters.ib.fabric.spines: unknown key; known: nodes_per_leaf, oversubscription, routing"),
    ("oversubscription: 2", "oversubscription: 2, routing: adaptive", "13: clusters.ib.fabric.routing: routing is for RoCE flows, and the nodes have no roce NIC; leave it out"),
    ("    nodes: 3\n", "    nodes: 3\n    fabric: {nodes_per_leaf: 1, routing: five_tupel}\n", "16: clusters.roce.fabric.routing: routing 'five_tupel' is not in the catalogue; did you mean 'five_tuple'?"),
    ("seq_len: 2048", "seq_len: 2048\n  seqlen: 1", "28: workload.seqlen: unknown key; did you mean 'seq_len'?"),
    ("name: tiny", "name: tiny\nlinkz: []", "3: linkz: unknown key; did you mean 'links'?"),
    ("holmes-sim/topology/1", "holmes-sim/topology/2", "1: format: 'holmes-sim/topology/2' is unknown; known: 'holmes-sim/topology/1'"),
    ("name: tiny", "name: tiny\ncommunicator: both", "3: communicator: 'both' is unknown; known: 'vendor' or 'unified'"),
    ("a100-sxm4-80gb", "a100-sxm4-80g", "8: clusters.ib.node.devices.type: device 'a100-sxm4-80g' is not in the catalogue; did you mean 'a100-sxm4-80gb'?"),
    ("nvlink3", "nvlnk3", "9: clusters.ib.node.intra_node: interconnect 'nvlnk3' is not in the catalogue; did you mean 'nvlink3'?"),
    ("    nodes: 2\n", "    nodes: 2\n    hosts: gpu[1-3]\n", "5: clusters.ib: 3 hosts for 2 nodes; give a host for each node, or no hosts"),
    ("    nodes: 2\n", "    nodes: 2\n    hosts: gpu[1-\n", "7: clusters.ib.hosts: 'gpu[1-' is not a list of hosts; write for example gpu[001-004,007]"),
    ("    nodes: 2\n", "    nodes: 2\n    hosts: [a, a;b]\n", "7: clusters.ib.hosts: 'a;b' is not a name of a host or interface; write letters, digits, '.', '_', ':' and '-'"),
    ("    nodes: 2\n", "    nodes: 2\n    nvlink_domain: 12\n", "7: clusters.ib.nvlink_domain: 12 devices are not whole nodes of 8 devices; write a multiple of 8"),
    ("    nodes: 2\n", "    nodes: 2\n    nvlink_domain: 24\n", "7: clusters.ib.nvlink_domain: 2 nodes are not whole domains of 3 nodes (24 devices); write another cluster for the rest"),
    ("    nodes: 2\n", "    nodes: 2\n    nvlink_domain: 72 GB\n", "7: clusters.ib.nvlink_domain: '72 GB' is not a whole number"),
    ("    nodes: 3\n", "    nodes: 3\n    nvlink_domain: 12\n    fabric: {nodes_per_leaf: 4}\n", "17: clusters.roce.fabric.nodes_per_leaf: 4 nodes are not whole NVLink domains of 3 nodes; write a multiple of 3"),
    ("    nodes: 3\n", "    nodes: 3\n    nvlink_domains: 12\n", "16: clusters.roce.nvlink_domains: unknown key; did you mean 'nvlink_domain'?"),
    ("count: 4}", "count: 4, names: [mlx5_0]}", "11: clusters.ib.node.nics[0]: 1 names for 4 NICs; give a name for each NIC, or no names"),
    ("count: 4}", "count: 4, gid_index: 3}", "11: clusters.ib.node.nics[0]: gid_index is for NICs of type roce only, not infiniband"),
    ("type: ethernet, bandwidth: 25 Gbit/s}", "type: ethernet, bandwidth: 25 Gbit/s, sharp: true}", "12: clusters.ib.node.nics[1]: sharp is for NICs of type infiniband only, not ethernet"),
    ("count: 4}", "count: 4, socket: 2}", "11: clusters.ib.node.nics[0]: socket 2 does not exist: a node has the sockets 0 and 1"),
    ("count: 4}", "count: 4, socket: 0}", "7: clusters.ib.node: NICs with socket need the rate between the sockets; write for example socket_link: 10 GB/s"),
    ("intra_node: nvlink3", "intra_node: nvlink3\n      socket_link: 10 GB/s", "7: clusters.ib.node: socket_link has no effect: no NIC says on which socket it is; write for example socket: 0 there"),
    ("    nodes: 2\n", "    nodes: 2\n    hosts: [a, a]\n", "1: host 'a' is given twice; each host is one node of one cluster"),
    ("type: infiniband", "type: infinband", "11: clusters.ib.node.nics[0].type: NIC type 'infinband' is not in the catalogue; did you mean 'infiniband'?"),
    ("type: infiniband", "type: token-ring", "11: clusters.ib.node.nics[0].type: NIC type 'token-ring' is not in the catalogue; known: efa, ethernet, infiniband, omni-path, roce, slingshot"),
    ("type: ethernet, bandwidth: 100", "type: etherneet, bandwidth: 100", "23: links[0].type: NIC type 'etherneet' is not in the catalogue; did you mean 'ethernet'?"),
    ("precision: fp16", "precision: fp12", "28: workload.precision: precision 'fp12' is unknown; known: fp32, tf32, fp16, bf16, fp8, mxfp8, nvfp4"),
    ("gpt-3.6b", "gpt-36b", "25: workload.model: model 'gpt-36b' is neither in the catalogue nor a path to a config.json; did you mean 'gpt-3.6b'?"),
    # quantities
    ("200 Gbit/s", "200", "11: clusters.ib.node.nics[0].bandwidth: 200 is not a rate: the unit is missing; write for example '200 Gbit/s'"),
    ("200 Gbit/s", "200 gbit/s", "11: clusters.ib.node.nics[0].bandwidth: '200 gbit/s' is not a rate: unit 'gbit/s' is unknown here; write for example '200 Gbit/s'"),
    ("200 Gbit/s", "200 GB", "11: clusters.ib.node.nics[0].bandwidth: '200 GB' is not a rate: unit 'GB' is unknown here; write for example '200 Gbit/s'"),
    ("200 Gbit/s", "0 Gbit/s", "11: clusters.ib.node.nics[0].bandwidth: '0 Gbit/s' must be greater than zero"),
    ("200 Gbit/s", "-200 Gbit/s", "11: clusters.ib.node.nics[0].bandwidth: '-200 Gbit/s' is not a rate; write for example '200 Gbit/s'"),
    ("latency: 50 us", "latency: 50", "23: links[0].latency: 50 is not a time: the unit is missing; write for example '5 us'"),
    # keys that are missing or given twice
    ("      intra_node: nvlink3\n", "", "7: clusters.ib.node.intra_node: this key is missing; nodes of a100-sxm4-80gb usually have nvlink3"),
    ("format: holmes-sim/topology/1\n", "", "1: format: this key is missing; write format: holmes-sim/topology/1"),
    (", latency: 50 us", "", "23: links[0].latency: this key is missing"),
    ("    nodes: 2\n", "    nodes: 2\n    nodes: 3\n", "6: clusters.ib.nodes: key given twice; line 7 repeats it"),
    # counts
    ("nodes: 2", "nodes: 0", "6: clusters.ib.nodes: 0 must be at least 1"),
    ("nodes: 2", "nodes: -1", "6: clusters.ib.nodes: -1 must be at least 1"),
    ("nodes: 2", "nodes: 1.5", "6: clusters.ib.nodes: 1.5 is not a whole number"),
    ("nodes: 2", "nodes: '2'", "6: clusters.ib.nodes: '2' is not a whole number; write 2"),
    ("count: 8", "count: two", "8: clusters.ib.node.devices.count: 'two' is not a whole number"),
    ("seq_len: 2048", "seq_len: 2k", "27: workload.seq_len: '2k' is not a whole number; write 2048"),
    ("seq_len: 2048", "seq_len: '2,048'", "27: workload.seq_len: '2,048' is not a whole number; write 2048"),
    ("format: holmes-sim/topology/1\n", "format: holmes-sim/topology/1\nmemory_headroom: 8\n", "2: memory_headroom: 8 must be at least 0 and at most 1; write 0.08 for 8 %"),
    ("format: holmes-sim/topology/1\n", "format: holmes-sim/topology/1\nmemory_headroom: 12%\n", "2: memory_headroom: '12%' is not a number; write 0.12 for 12 %"),
    ("format: holmes-sim/topology/1\n", "format: holmes-sim/topology/1\nmemory_headroom: 800\n", "2: memory_headroom: 800 must be at least 0 and at most 1"),
    ("count: 8", "count: 8, price: 2.5", "8: clusters.ib.node.devices.price: 2.5 is not a price: the unit is missing; write for example '2.50 USD/h'"),
    ("count: 8", "count: 8, price: 2 EUR/h", "8: clusters.ib.node.devices.price: '2 EUR/h' is not a price: unit 'EUR/h' is unknown here; write for example '2.50 USD/h'"),
    ("count: 8", "count: 8, price: 0 USD/h", "8: clusters.ib.node.devices.price: '0 USD/h' must be greater than zero"),
    # mappings and lists
    ("{type: a100-sxm4-80gb, count: 8}", "a100-sxm4-80gb", "8: clusters.ib.node.devices: a mapping of keys is expected here, not 'a100-sxm4-80gb'"),
    ("{type: a100-sxm4-80gb, count: 8}", "[8]", "8: clusters.ib.node.devices: a mapping of keys is expected here, not [8]"),
    ("{nodes_per_leaf: 16, oversubscription: 2}", "yes please", "13: clusters.ib.fabric: a mapping of keys is expected here, not 'yes please'"),
    ("between: [ib, roce]", "between: ib", "23: links[0].between: two cluster names are expected here, not 'ib'"),
    ("intra_node: nvlink3", "intra_node: 3", "9: clusters.ib.node.intra_node: 3 is not text"),
    # faults of clusters and links together
    ("[ib, roce]", "[ib, rocks]", "23: links[0].between[1]: cluster 'rocks' does not exist; did you mean 'roce'?"),
    ("[ib, roce]", "[ib, ib]", "23: links[0].between: a link joins two different clusters, not 'ib' to itself"),
    ("type: ethernet, bandwidth: 100", "type: infiniband, bandwidth: 100", "23: links[0].type: the nodes of cluster 'roce' have no infiniband NIC, which this link needs; they have: ethernet, roce"),
    ("type: roce", "type: ethernet", "21: clusters.roce.node.nics[1].type: NIC type 'ethernet' is listed twice; write it once with its count"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "line"), ONE_LINE, ids=[row[2].partition(": ")[2][:70] for row in ONE_LINE])
def test_a_fault_is_one_line_with_place_value_and_what_would_be_right(tmp_path: Path, old: str, new: str, line: str) -> None:
    assert faults(tmp_path, changed((old, new))) == [f"topo.yaml:{line}"]


def test_cards_are_joined_by_their_slots_where_no_interconnect_is_given(tmp_path: Path) -> None:
    cards = changed(("      intra_node: nvlink3\n", ""), ("a100-sxm4-80gb", "l40s"))
    said = "this key is missing; nodes of l40s have pcie4 where no bridge joins them"
    assert faults(tmp_path, cards)[0] == f"topo.yaml:7: clusters.ib.node.intra_node: {said}"


def test_two_nodes_without_nics_are_refused(tmp_path: Path) -> None:
    assert faults(tmp_path, changed((NICS, ""), (TOPOLOGY[TOPOLOGY.index("links:") : TOPOLOGY.index("workload:")], ""))) == [
        "topo.yaml:7: clusters.ib.node: 2 nodes without NICs cannot communicate; give nics"
    ]


def test_a_cluster_name_with_a_slash_is_refused(tmp_path: Path) -> None:
    assert faults(tmp_path, changed(("  ib:", "  ib/0:"), ("[ib, roce]", "[ib/0, roce]"))) == [
        "topo.yaml:5: clusters.ib/0: cluster name 'ib/0' may have letters, digits, '.', '_' and '-' only"
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "1: the file is empty; a mapping of keys is expected here"),
        ("- ib\n- roce\n", "1: a mapping of keys is expected here, not list"),
        ("a topology\n", "1: a mapping of keys is expected here, not str"),
        ("name: [1,\n", "2: not well-formed YAML: did not find expected node content"),
        ("name: a: b\n", "1: not well-formed YAML: mapping values are not allowed in this context"),
        ("name: tiny\n\tnodes: 2\n", "2: not well-formed YAML: found a tab character that violates indentation"),
        ("name: *tiny\n", "1: not well-formed YAML: found undefined alias"),
    ],
)
def test_a_file_that_is_not_a_mapping_is_refused(tmp_path: Path, text: str, line: str) -> None:
    assert faults(tmp_path, text) == [f"topo.yaml:{line}"]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "picture.yaml").write_bytes(b"\xff\xd8")
    for name, message in [
        ("none.yaml", "none.yaml: no such file"),
        (".", ": is a folder, not a file"),
        ("picture.yaml", "picture.yaml: not a UTF-8 text file (invalid start byte at byte 0)"),
    ]:
        with pytest.raises(TopologyError) as caught:
            load(tmp_path / name)
        assert str(caught.value).removeprefix(str(tmp_path)).lstrip("/") == message


def test_all_faults_of_a_file_are_reported_at_once(tmp_path: Path) -> None:
    text = changed(
        ("nodes: 2", "nodez: 2"), ("200 Gbit/s", "200"), ("count: 2", "count: 0"), ("precision: fp16", "precision: fp12")
    )
    assert faults(tmp_path, text) == [
        "topo.yaml:5: clusters.ib.nodes: this key is missing",
        "topo.yaml:6: clusters.ib.nodez: unknown key; did you mean 'node'?",
        "topo.yaml:11: clusters.ib.node.nics[0].bandwidth: 200 is not a rate: the unit is missing; write for example '200 Gbit/s'",
        "topo.yaml:20: clusters.roce.node.nics[0].count: 0 must be at least 1",
        "topo.yaml:28: workload.precision: precision 'fp12' is unknown; known: fp32, tf32, fp16, bf16, fp8, mxfp8, nvfp4",
    ]


def test_unknown_names_of_a_file_are_reported_at_once(tmp_path: Path) -> None:
    text = changed(("type: infiniband", "type: infinband"), ("[ib, roce]", "[ibb, roce]"), ("gpt-3.6b", "gpt-36b"))
    assert faults(tmp_path, text) == [
        "topo.yaml:11: clusters.ib.node.nics[0].type: NIC type 'infinband' is not in the catalogue; did you mean 'infiniband'?",
        "topo.yaml:23: links[0].between[0]: cluster 'ibb' does not exist; did you mean 'ib'?",
        "topo.yaml:25: workload.model: model 'gpt-36b' is neither in the catalogue nor a path to a config.json; did you mean 'gpt-3.6b'?",
    ]


@pytest.mark.parametrize(
    ("shape", "line"),
    [
        (SHAPE.replace("vocab", "kv_heads: 3, vocab"), "workload.model: kv_heads 3 does not divide heads 8"),
        (SHAPE.replace("vocab", "mlp: gulu, vocab"), "workload.model: mlp 'gulu' is unknown; known: gelu, swiglu, relu2"),
        (SHAPE.replace("hidden: 64, ", ""), "workload.model.hidden: this key is missing"),
        (SHAPE.replace("layers: 2", "layers: 0"), "workload.model.layers: 0 must be at least 1"),
        (SHAPE.replace("vocab", "hiden: 3, vocab"), "workload.model.hiden: unknown key; did you mean 'hidden'?"),
    ],
)
def test_a_fault_in_the_shape_of_a_model_is_one_line(tmp_path: Path, shape: str, line: str) -> None:
    assert faults(tmp_path, changed(("gpt-3.6b", shape))) == [f"topo.yaml:25: {line}"]


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("memory: 1 GiB", "memory: 1", "9: clusters.ib.node.devices.type.memory: 1 is not a size: the unit is missing; write for example '80 GiB'"),
        ("fp16: 1 TFLOP/s", "fp17: 1 TFLOP/s", "9: clusters.ib.node.devices.type.peak.fp17: precision 'fp17' is unknown; known: fp32, tf32, fp16, bf16, fp8, mxfp8, nvfp4"),
        ("compute_units: 4", "compute_units: 0", "9: clusters.ib.node.devices.type.compute_units: 0 must be at least 1"),
        (" elementwise_efficiency: 0.75", " elementwise_efficiency: 7.5", "11: clusters.ib.node.devices.type.elementwise_efficiency: 7.5 must be above 0 and at most 2 (1 unless it was fitted)"),
    ],
)  # fmt: skip
def test_a_fault_in_the_facts_of_a_device_is_one_line(tmp_path: Path, old: str, new: str, line: str) -> None:
    assert faults(tmp_path, changed(("a100-sxm4-80gb", DEVICE.replace(old, new)))) == [f"topo.yaml:{line}"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("oversubscription: 2", "oversubscription: true"),
        ("oversubscription: 2", "oversubscription: '2'"),
        ("oversubscription: 2", "oversubscription: .inf"),
        ("gpt-3.6b", SHAPE.replace("vocab", "tied_embeddings: 1, vocab")),
    ],
)
def test_a_value_of_the_wrong_type_is_not_converted(tmp_path: Path, old: str, new: str) -> None:
    assert len(faults(tmp_path, changed((old, new)))) == 1


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("between: [ib, roce]", "between: [ib]", "links[0].between: two cluster names are expected here, not ['ib']"),
        (
            "between: [ib, roce]",
            "between: [a, b, c]",
            "links[0].between: two cluster names are expected here, not ['a', 'b', 'c']",
        ),
        ("  ib:\n", "  7:\n", "clusters.7: cluster name 7 is not text; put it in quotes"),
    ],
)
def test_a_fault_in_a_cluster_name_is_one_line(tmp_path: Path, old: str, new: str, line: str) -> None:
    assert line in [fault.split(": ", 1)[1] for fault in faults(tmp_path, changed((old, new)))]


def test_a_topology_without_clusters_is_refused(tmp_path: Path) -> None:
    text = "format: holmes-sim/topology/1\nname: tiny\nclusters: {}\n"
    assert faults(tmp_path, text) == ["topo.yaml:3: clusters: at least one is needed"]
