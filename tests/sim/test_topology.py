# ruff: noqa: E501 - a fault and its line stand side by side
"""topo.yaml at the door: what a file says becomes values, and every fault is one clear line that names its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim.errors import TopologyError
from sim.formats import catalog
from sim.formats.documents import read_text
from sim.formats.topology import load, workload_facts
from sim.hardware.cluster import Cluster, Fabric, Fleet, Nic, Node, Trunk
from sim.hardware.link_spec import Protocol
from sim.hardware.stack import DEFAULT
from sim.units import MICRO
from sim.workload.model import Model
from sim.workload.workload import Workload

SHIPPED = sorted((Path(__file__).parents[2] / "topologies").rglob("*.yaml"))

TOPOLOGY = """\
format: holmes-sim/topology/1
name: tiny
source: written for a test
clusters:
  ib:
    nodes: 2
    node:
      devices: {type: a100-sxm4-80gb, count: 8}
      intra_node: nvlink3
      nics:
        - {type: infiniband, bandwidth: 200 Gbit/s, count: 4}
        - {type: ethernet, bandwidth: 25 Gbit/s}
    fabric: {nodes_per_leaf: 16, oversubscription: 2}
  roce:
    nodes: 3
    node:
      devices: {type: h100-sxm5-80gb, count: 4}
      intra_node: nvlink4
      nics:
        - {type: roce, bandwidth: 100 Gbit/s, count: 2}
        - {type: ethernet, bandwidth: 10 Gbit/s}
links:
  - {between: [ib, roce], type: ethernet, bandwidth: 100 Gbit/s, latency: 50 us}
workload:
  model: gpt-3.6b
  global_batch_size: 768
  seq_len: 2048
  precision: fp16
"""

SHAPE = "{layers: 2, hidden: 64, heads: 8, ffn_hidden: 256, vocab: 512}"

DEVICE = """{
        vendor: acme, compute_units: 4, peak: {bf16: 2 TFLOP/s, fp16: 1 TFLOP/s}, memory: 1 GiB, memory_bandwidth: 3 GB/s,
        host_bandwidth: 8 Gbit/s, gemm: {launch: 0 us, compute_efficiency: 0.5, memory_efficiency: 1}, watts: 300 W,
        attention: {forward_efficiency: 0.25, backward_efficiency: 0.2}, elementwise_efficiency: 0.75}"""

INTERCONNECT = """{
        bandwidth: 2 GB/s, latency: 1 us, overhead: 2 us, interference: 0.1, pair_bandwidth: 1 GB/s,
        efficiency: {all_reduce: 0.9, all_gather: 0.8, reduce_scatter: 0.7, all_to_all: 0.6, send_recv: 0.5}}"""


def changed(*changes: tuple[str, str]) -> str:
    """The topology with the first place of each text replaced."""
    text = TOPOLOGY
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    return text


def faults(folder: Path, text: str) -> list[str]:
    """The lines of the error that reading a file raises, the folder left out."""
    file = folder / "topo.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(TopologyError) as caught:
        load(file)
    return str(caught.value).replace(f"{folder}/", "").splitlines()


def read(folder: Path, text: str) -> Fleet:
    (folder / "topo.yaml").write_text(text, encoding="utf-8")
    return load(folder / "topo.yaml").fleet


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


def test_facts_of_a_device_in_place_work_like_a_name(tmp_path: Path) -> None:
    device = read(tmp_path, changed(("a100-sxm4-80gb", DEVICE))).cluster("ib").node.device
    assert (device.name, device.vendor, device.compute_units, device.watts) == ("device", "acme", 4, 300.0)
    assert device.peak == (("bf16", 2e12), ("fp16", 1e12))
    assert (device.memory, device.memory_bandwidth, device.host_bandwidth) == (2**30, 3e9, 1e9)
    curve = (device.gemm.launch, device.gemm.compute_efficiency, device.gemm.memory_efficiency)
    assert curve == pytest.approx((0.0, 0.5 * DEFAULT.gemm, 1.0 * DEFAULT.gemm))
    assert (device.launch, device.step) == (DEFAULT.launch, DEFAULT.step)
    shares = (device.attention_forward, device.attention_backward, device.elementwise_efficiency)
    assert shares == pytest.approx((0.25 * DEFAULT.attention, 0.2 * DEFAULT.attention, 0.75 * DEFAULT.elementwise))


def test_a_price_stands_beside_the_type_or_in_its_facts(tmp_path: Path) -> None:
    priced = DEVICE.replace("watts: 300 W", "watts: 300 W, idle_watts: 60 W, price: 3.60 USD/h")
    inside = read(tmp_path, changed(("a100-sxm4-80gb", priced))).cluster("ib").node.device
    assert (inside.price, inside.watts, inside.idle_watts) == (pytest.approx(0.001), 300.0, 60.0)
    beside = read(tmp_path, changed(("a100-sxm4-80gb, count: 8", "a100-sxm4-80gb, count: 8, price: 7.20 USD/h")))
    assert [c.node.device.price for c in beside.clusters] == [pytest.approx(0.002), None]
    both = read(tmp_path, changed(("a100-sxm4-80gb, count: 8", f"{priced}, count: 8, price: 7.20 USD/h")))
    assert both.cluster("ib").node.device.price == pytest.approx(0.002)


def test_a_device_does_not_draw_more_idle_than_busy(tmp_path: Path) -> None:
    for watts, told in (("watts: 300 W, idle_watts: 301 W", "are 300 W"), ("idle_watts: 301 W", "are not given")):
        (line,) = faults(tmp_path, changed(("a100-sxm4-80gb", DEVICE.replace("watts: 300 W", watts))))
        assert line == f"topo.yaml:8: clusters.ib.node.devices.type: idle_watts 301 W must not exceed watts, which {told}"


def test_facts_of_an_interconnect_in_place_work_like_a_name(tmp_path: Path) -> None:
    link = read(tmp_path, changed(("nvlink3", INTERCONNECT))).cluster("ib").node.intra_node
    assert (link.bandwidth, link.pair_bandwidth, link.latency, link.overhead, link.interference) == (2e9, 1e9, 1e-6, 2e-6, 0.1)
    assert [share / DEFAULT.communication for _, share in link.efficiency] == pytest.approx([0.9, 0.8, 0.7, 0.6, 0.5])


def test_an_interconnect_in_place_may_state_protocols_and_what_groups_drive(tmp_path: Path) -> None:
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


def test_the_shape_of_a_model_in_place_works_like_a_name(tmp_path: Path) -> None:
    (tmp_path / "topo.yaml").write_text(changed(("gpt-3.6b", SHAPE)))
    workload = load(tmp_path / "topo.yaml").workload
    assert workload is not None
    assert workload.model == Model("model", 2, 64, 8, 8, 256, 512)


def test_the_facts_of_a_workload_read_back_as_the_same_workload(tmp_path: Path) -> None:
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


def test_hosts_and_nics_may_bear_the_names_that_launches_need(tmp_path: Path) -> None:
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


NICS = TOPOLOGY[TOPOLOGY.index("      nics:") : TOPOLOGY.index("    fabric:")]

ONE_LINE = [
    # a word that nobody knows
    ("oversubscription: 2", "oversubscription: 2, spines: 4", "13: clusters.ib.fabric.spines: unknown key; known: nodes_per_leaf, oversubscription"),
    ("seq_len: 2048", "seq_len: 2048\n  seqlen: 1", "28: workload.seqlen: unknown key; did you mean 'seq_len'?"),
    ("name: tiny", "name: tiny\nlinkz: []", "3: linkz: unknown key; did you mean 'links'?"),
    ("holmes-sim/topology/1", "holmes-sim/topology/2", "1: format: 'holmes-sim/topology/2' is unknown; known: 'holmes-sim/topology/1'"),
    ("name: tiny", "name: tiny\ncommunicator: both", "3: communicator: 'both' is unknown; known: 'vendor' or 'unified'"),
    ("a100-sxm4-80gb", "a100-sxm4-80g", "8: clusters.ib.node.devices.type: device 'a100-sxm4-80g' is not in the catalogue; did you mean 'a100-sxm4-80gb'?"),
    ("nvlink3", "nvlink33", "9: clusters.ib.node.intra_node: interconnect 'nvlink33' is not in the catalogue; did you mean 'nvlink3'?"),
    ("    nodes: 2\n", "    nodes: 2\n    hosts: gpu[1-3]\n", "5: clusters.ib: 3 hosts for 2 nodes; name each, or none"),
    ("    nodes: 2\n", "    nodes: 2\n    hosts: gpu[1-\n", "7: clusters.ib.hosts: 'gpu[1-' is no list of hosts such as gpu[001-004,007]"),
    ("    nodes: 2\n", "    nodes: 2\n    hosts: [a, a;b]\n", "7: clusters.ib.hosts: 'a;b' is no name of a host or interface: letters, digits, '.', '_', ':' and '-'"),
    ("count: 4}", "count: 4, names: [mlx5_0]}", "11: clusters.ib.node.nics[0]: 1 names for 4 NICs; name each, or none"),
    ("count: 4}", "count: 4, gid_index: 3}", "11: clusters.ib.node.nics[0]: gid_index is of RoCE NICs only, not of infiniband"),
    ("    nodes: 2\n", "    nodes: 2\n    hosts: [a, a]\n", "1: host 'a' is named twice; each stands once, in one cluster"),
    ("type: infiniband", "type: infinband", "11: clusters.ib.node.nics[0].type: NIC type 'infinband' is not in the catalogue; did you mean 'infiniband'?"),
    ("type: infiniband", "type: token-ring", "11: clusters.ib.node.nics[0].type: NIC type 'token-ring' is not in the catalogue; known: ethernet, infiniband, omni-path, roce, slingshot"),
    ("type: ethernet, bandwidth: 100", "type: etherneet, bandwidth: 100", "23: links[0].type: NIC type 'etherneet' is not in the catalogue; did you mean 'ethernet'?"),
    ("precision: fp16", "precision: fp12", "28: workload.precision: precision 'fp12' is unknown; known: fp32, tf32, fp16, bf16, fp8"),
    ("gpt-3.6b", "gpt-36b", "25: workload.model: model 'gpt-36b' is neither in the catalogue nor a path to a config.json; did you mean 'gpt-3.6b'?"),
    # quantities
    ("200 Gbit/s", "200", "11: clusters.ib.node.nics[0].bandwidth: 200 is not a rate: the unit is missing; write for example '200 Gbit/s'"),
    ("200 Gbit/s", "200 gbit/s", "11: clusters.ib.node.nics[0].bandwidth: '200 gbit/s' is not a rate: unit 'gbit/s' is unknown here; write for example '200 Gbit/s'"),
    ("200 Gbit/s", "200 GB", "11: clusters.ib.node.nics[0].bandwidth: '200 GB' is not a rate: unit 'GB' is unknown here; write for example '200 Gbit/s'"),
    ("200 Gbit/s", "0 Gbit/s", "11: clusters.ib.node.nics[0].bandwidth: '0 Gbit/s' must be greater than zero"),
    ("200 Gbit/s", "-200 Gbit/s", "11: clusters.ib.node.nics[0].bandwidth: '-200 Gbit/s' is not a rate; write for example '200 Gbit/s'"),
    ("latency: 50 us", "latency: 50", "23: links[0].latency: 50 is not a time: the unit is missing; write for example '5 us'"),
    # keys that are missing or given twice
    ("      intra_node: nvlink3\n", "", "7: clusters.ib.node.intra_node: this key is missing"),
    ("format: holmes-sim/topology/1\n", "", "1: format: this key is missing"),
    (", latency: 50 us", "", "23: links[0].latency: this key is missing"),
    ("    nodes: 2\n", "    nodes: 2\n    nodes: 3\n", "6: clusters.ib.nodes: key given twice; line 7 repeats it"),
    # counts
    ("nodes: 2", "nodes: 0", "6: clusters.ib.nodes: 0 must be at least 1"),
    ("nodes: 2", "nodes: -1", "6: clusters.ib.nodes: -1 must be at least 1"),
    ("nodes: 2", "nodes: 1.5", "6: clusters.ib.nodes: 1.5 is not a whole number"),
    ("nodes: 2", "nodes: '2'", "6: clusters.ib.nodes: '2' is not a whole number"),
    ("count: 8", "count: two", "8: clusters.ib.node.devices.count: 'two' is not a whole number"),
    ("seq_len: 2048", "seq_len: 2k", "27: workload.seq_len: '2k' is not a whole number"),
    ("count: 8", "count: 8, price: 2.5", "8: clusters.ib.node.devices.price: 2.5 is not a price: the unit is missing; write for example '2.50 USD/h'"),
    ("count: 8", "count: 8, price: 2 EUR/h", "8: clusters.ib.node.devices.price: '2 EUR/h' is not a price: unit 'EUR/h' is unknown here; write for example '2.50 USD/h'"),
    ("count: 8", "count: 8, price: 0 USD/h", "8: clusters.ib.node.devices.price: '0 USD/h' must be greater than zero"),
    # mappings and lists
    ("{type: a100-sxm4-80gb, count: 8}", "a100-sxm4-80gb", "8: clusters.ib.node.devices: a mapping of keys is expected here, not 'a100-sxm4-80gb'"),
    ("{type: a100-sxm4-80gb, count: 8}", "[8]", "8: clusters.ib.node.devices: a mapping of keys is expected here, not [8]"),
    ("{nodes_per_leaf: 16, oversubscription: 2}", "yes please", "13: clusters.ib.fabric: a mapping of keys is expected here, not 'yes please'"),
    ("between: [ib, roce]", "between: ib", "23: links[0].between: two cluster names are expected here, not 'ib'"),
    ("intra_node: nvlink3", "intra_node: 3", "9: clusters.ib.node.intra_node: 3 is not text"),
    # what only the whole file can show
    ("[ib, roce]", "[ib, rocks]", "23: links[0].between[1]: cluster 'rocks' does not exist; did you mean 'roce'?"),
    ("[ib, roce]", "[ib, ib]", "23: links[0].between: a link joins two different clusters, not 'ib' to itself"),
    ("type: ethernet, bandwidth: 100", "type: infiniband, bandwidth: 100", "23: links[0].type: the nodes of cluster 'roce' have no infiniband NIC to use this link with"),
    ("type: roce", "type: ethernet", "21: clusters.roce.node.nics[1].type: NIC type 'ethernet' is listed twice; write it once with its count"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "line"), ONE_LINE, ids=[row[2].partition(": ")[2][:70] for row in ONE_LINE])
def test_a_fault_is_one_line_with_place_value_and_what_would_be_right(tmp_path: Path, old: str, new: str, line: str) -> None:
    assert faults(tmp_path, changed((old, new))) == [f"topo.yaml:{line}"]


def test_nodes_without_nics_cannot_be_joined(tmp_path: Path) -> None:
    assert faults(tmp_path, changed((NICS, ""), (TOPOLOGY[TOPOLOGY.index("links:") : TOPOLOGY.index("workload:")], ""))) == [
        "topo.yaml:7: clusters.ib.node: 2 nodes without NICs cannot be joined; list nics"
    ]


def test_a_single_node_needs_no_nics(tmp_path: Path) -> None:
    text = changed(("nodes: 2", "nodes: 1"), (NICS, ""), (TOPOLOGY[TOPOLOGY.index("links:") : TOPOLOGY.index("workload:")], ""))
    assert read(tmp_path, text).cluster("ib").node.nics == ()


def test_a_cluster_name_with_a_slash_is_refused(tmp_path: Path) -> None:
    assert faults(tmp_path, changed(("  ib:", "  ib/0:"), ("[ib, roce]", "[ib/0, roce]"))) == [
        "topo.yaml:5: clusters.ib/0: cluster name 'ib/0' may hold letters, digits, '.', '_' and '-' only"
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "1: a mapping of keys is expected here, not empty"),
        ("- ib\n- roce\n", "1: a mapping of keys is expected here, not list"),
        ("a topology\n", "1: a mapping of keys is expected here, not str"),
        ("name: [1,\n", "2: not well-formed YAML: did not find expected node content"),
        ("name: a: b\n", "1: not well-formed YAML: mapping values are not allowed in this context"),
        ("name: tiny\n\tnodes: 2\n", "2: not well-formed YAML: found a tab character that violates indentation"),
        ("name: *tiny\n", "1: not well-formed YAML: found undefined alias"),
    ],
)
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, text: str, line: str) -> None:
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


def test_a_byte_order_mark_is_no_part_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "marked.yaml"
    file.write_text(TOPOLOGY, encoding="utf-8-sig")
    assert read_text(file) == TOPOLOGY


def test_all_faults_of_a_file_are_reported_at_once(tmp_path: Path) -> None:
    text = changed(
        ("nodes: 2", "nodez: 2"), ("200 Gbit/s", "200"), ("count: 2", "count: 0"), ("precision: fp16", "precision: fp12")
    )
    assert faults(tmp_path, text) == [
        "topo.yaml:5: clusters.ib.nodes: this key is missing",
        "topo.yaml:6: clusters.ib.nodez: unknown key; did you mean 'node'?",
        "topo.yaml:11: clusters.ib.node.nics[0].bandwidth: 200 is not a rate: the unit is missing; write for example '200 Gbit/s'",
        "topo.yaml:20: clusters.roce.node.nics[0].count: 0 must be at least 1",
        "topo.yaml:28: workload.precision: precision 'fp12' is unknown; known: fp32, tf32, fp16, bf16, fp8",
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
def test_a_fault_of_a_shape_in_place_is_one_line(tmp_path: Path, shape: str, line: str) -> None:
    assert faults(tmp_path, changed(("gpt-3.6b", shape))) == [f"topo.yaml:25: {line}"]


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("memory: 1 GiB", "memory: 1", "9: clusters.ib.node.devices.type.memory: 1 is not a size: the unit is missing; write for example '80 GiB'"),
        ("fp16: 1 TFLOP/s", "fp17: 1 TFLOP/s", "9: clusters.ib.node.devices.type.peak.fp17: precision 'fp17' is unknown; known: fp32, tf32, fp16, bf16, fp8"),
        ("compute_units: 4", "compute_units: 0", "9: clusters.ib.node.devices.type.compute_units: 0 must be at least 1"),
        (" elementwise_efficiency: 0.75", " elementwise_efficiency: 7.5", "11: clusters.ib.node.devices.type.elementwise_efficiency: 7.5 must lie between 0 and 1 (a fitted one at most 2)"),
    ],
)  # fmt: skip
def test_a_fault_of_a_device_in_place_is_one_line(tmp_path: Path, old: str, new: str, line: str) -> None:
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
def test_a_value_of_the_wrong_type_is_not_taken_for_another(tmp_path: Path, old: str, new: str) -> None:
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
def test_names_of_the_wrong_kind_are_one_line(tmp_path: Path, old: str, new: str, line: str) -> None:
    assert line in [fault.split(": ", 1)[1] for fault in faults(tmp_path, changed((old, new)))]


def test_a_topology_without_clusters_is_refused(tmp_path: Path) -> None:
    text = "format: holmes-sim/topology/1\nname: tiny\nclusters: {}\n"
    assert faults(tmp_path, text) == ["topo.yaml:3: clusters: at least one is needed"]
