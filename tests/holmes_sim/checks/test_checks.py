"""What each check finds in a topology that is clean but for one thing, and that it finds nothing in the clean one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holmes_sim import checking, checks
from sim.errors import TopologyError

CLEAN = """\
format: holmes-sim/topology/1
name: fleet
clusters:
  a:
    nodes: 2
    hosts: "a[1-2]"
    node:
      devices: {type: a100-sxm4-80gb, count: 4}
      intra_node: nvlink3
      nics:
        - {type: infiniband, bandwidth: 200 Gbit/s, count: 4, names: [m0, m1, m2, m3]}
        - {type: ethernet, bandwidth: 25 Gbit/s, names: [eno1]}
  b:
    nodes: 2
    hosts: "b[1-2]"
    node:
      devices: {type: h100-sxm5-80gb, count: 4}
      intra_node: nvlink4
      nics:
        - {type: roce, bandwidth: 200 Gbit/s, count: 4, names: [m0, m1, m2, m3], gid_index: 3}
        - {type: ethernet, bandwidth: 25 Gbit/s, names: [eno1]}
links:
  - {between: [a, b], type: ethernet, bandwidth: 25 Gbit/s, latency: 50 us}
workload: {model: gpt-1.7b, global_batch_size: 64, seq_len: 1024}
"""
WORK = "workload: {model: gpt-1.7b, global_batch_size: 64, seq_len: 1024}\n"
LINK = "  - {between: [a, b], type: ethernet, bandwidth: 25 Gbit/s, latency: 50 us}\n"
IB = "type: infiniband, bandwidth: 200 Gbit/s, count: 4, names: [m0, m1, m2, m3]"
ROCE = "type: roce, bandwidth: 200 Gbit/s, count: 4, names: [m0, m1, m2, m3], gid_index: 3"
NAMES = ", names: [m0, m1, m2, m3], gid_index: 3"
SLOT = "204.8 Gbit/s, 80% of the 32 GB/s of PCIe"
CURVES = "the catalogue guesses the efficiency of the attention core on rtx-4090"
USUAL = "these infiniband NICs reach 84% of their rate, such NICs usually 96%: they are 12% slower"
CASES = [
    (
        "pcie_slots", IB, IB.replace("200", "400"), 11, "clusters.a.node.nics[0].bandwidth",
        f"a NIC of 400 Gbit/s is faster than a slot like that of a100-sxm4-80gb ({SLOT})",
    ),
    (
        "pcie_slots", IB, "type: infiniband, bandwidth: 200 Gbit/s, count: 8, names: [a, b, c, d, e, f, g, h]", 11,
        "clusters.a.node.nics[0].bandwidth",
        f"2 NICs of 200 Gbit/s are near to each a100-sxm4-80gb, whose link to the host carries less ({SLOT})",
    ),
    (
        "unused_nics", IB + "}\n", IB + "}\n        - {type: roce, bandwidth: 100 Gbit/s, names: [m9], gid_index: 3}\n", 12,
        "clusters.a.node.nics[1]",
        "no plan can use these roce NICs: nodes of the cluster communicate over infiniband, and no link of type roce is used "
        "from here",
    ),
    (
        "unused_links", LINK, LINK * 2 + LINK.replace("25 Gbit/s", "10 Gbit/s"), 25, "links[2]",
        "no plan can use this ethernet link: another link of this type between the clusters has less latency or more bandwidth",
    ),
    ("guessed_devices", "h100-sxm5-80gb", "rtx-4090", 17, "clusters.b.node.devices.type", CURVES),
    ("slow_nics", IB, IB + ", efficiency: 0.84", 11, "clusters.a.node.nics[0].efficiency", USUAL),
    (
        "slow_nics", "bandwidth: 25 Gbit/s, names: [eno1]}\n  b", "bandwidth: 22 Gbit/s, names: [eno1]}\n  b", 12,
        "clusters.a.node.nics[1].bandwidth",
        "ethernet NICs of 22 Gbit/s are 12% slower than those of cluster b (25 Gbit/s)",
    ),
    ("launch_names", '    hosts: "b[1-2]"\n', "", 13, "clusters.b", "names are not given: hosts"),
    ("launch_names", NAMES, ", gid_index: 3", 13, "clusters.b", "names are not given: roce NICs"),
    ("launch_names", ", gid_index: 3", "", 20, "clusters.b.node.nics[0]", "the GID index of these roce NICs is not given"),
    ("memory_headroom", WORK, WORK + "memory_headroom: 0\n", 25, "memory_headroom", "plans may use all memory of a device"),
    ("workload", WORK, "", 1, "workload", "the file does not say what is trained"),
    (
        "workload", "seq_len: 1024", "seq_len: 1024, precision: fp8", 8, "clusters.a.node.devices.type",
        "a100-sxm4-80gb has no fp8, only bf16, fp16, fp32, tf32",
    ),
    (
        "workload", "seq_len: 1024", "seq_len: 4096", 24, "workload.seq_len",
        "a sequence has 4096 tokens, and gpt-1.7b has 2048 learned positions",
    ),
]  # fmt: skip


@pytest.fixture
def put(tmp_path, monkeypatch):
    """A function that writes a topology to topo.yaml in the current folder."""
    monkeypatch.chdir(tmp_path)

    def written(text: str) -> str:
        Path("topo.yaml").write_text(text, encoding="utf-8")
        return "topo.yaml"

    return written


@pytest.mark.parametrize(("name", "before", "after", "line", "key", "odd"), CASES, ids=range(len(CASES)))
def test_one_odd_thing_is_found_with_its_line_and_key(put, name, before, after, line, key, odd):
    assert before in CLEAN
    (row,) = checking.check(put(CLEAN.replace(before, after, 1))).facts()["findings"]
    assert (row["check"], row["line"], row["key"], row["odd"]) == (name, line, key, odd)
    assert row["means"]
    assert row["better"]


def test_every_check_is_tried_here(put):
    assert {case[0] for case in CASES} | {"missing_prices", "unjoined_clusters"} == set(checks.names())
    found = checking.check(put(CLEAN + "require: {rent: {max: 100 USD/h}}\n"))
    assert [(name, finding.path[1]) for name, finding in found.found] == [("missing_prices", "a"), ("missing_prices", "b")]


def test_clusters_without_a_link_are_found_with_a_link_that_would_join_them(put):
    found = checking.check(put(CLEAN.replace("links:\n" + LINK, ""))).found
    assert [(name, finding.path, finding.better) for name, finding in found] == [
        ("unjoined_clusters", ("clusters", "a"), "links: [{between: [a, b], type: ethernet, bandwidth: ..., latency: ...}]"),
        ("unjoined_clusters", ("clusters", "b"), "links: [{between: [b, a], type: ethernet, bandwidth: ..., latency: ...}]"),
    ]


def test_two_equal_links_are_both_used(put):
    assert checking.check(put(CLEAN.replace(LINK, LINK * 2))).found == ()


def test_an_older_generation_of_nics_is_not_odd(put):
    older = CLEAN.replace("bandwidth: 25 Gbit/s, names: [eno1]}\n  b", "bandwidth: 10 Gbit/s, names: [eno1]}\n  b")
    assert checking.check(put(older)).found == ()


def test_devices_of_two_vendors_do_not_use_an_rdma_link(put):
    text = CLEAN.replace("h100-sxm5-80gb", "mi300x").replace("intra_node: nvlink4", "intra_node: infinity-fabric-4")
    text = text.replace(ROCE, IB).replace(LINK, LINK + LINK.replace("ethernet", "infiniband"))
    reasons = {name: finding.odd for name, finding in checking.check(put(text)).found}
    assert reasons["unused_links"] == "no plan can use this infiniband link: a and b communicate over ethernet"


def test_a_fleet_of_one_host_needs_no_names(put):
    one = "  a:\n    nodes: 1\n    node: {devices: {type: a100-sxm4-80gb, count: 8}, intra_node: nvlink3}\n"
    assert checking.check(put(CLEAN[: CLEAN.index("  a:")] + one + WORK)).found == ()


@pytest.mark.parametrize(
    ("before", "better"),
    [
        (", names: [m0, m1, m2, m3]", "names: [mlx5_0, ...] in the RDMA NIC (ibstat); with your names"),
        (", names: [eno1]", "names: [eno1] in the Ethernet NIC (ip link); with your names"),
    ],
)
def test_names_are_asked_for_by_the_kind_of_the_nics_that_lack_them(put, before, better):
    ((_, finding),) = checking.check(put(CLEAN.replace(before, "", 1))).found
    assert finding.better == better


def test_remarks_on_launches_come_last(put):
    text = CLEAN.replace("h100-sxm5-80gb", "rtx-4090").replace('    hosts: "a[1-2]"\n', "")
    assert [name for name, _ in checking.check(put(text)).found] == ["guessed_devices", "launch_names"]


@pytest.mark.parametrize(("nodes", "hosts"), [(1, "gpu001"), (2, "gpu[001-002]")])
def test_the_example_has_a_host_for_each_node(put, nodes, hosts):
    nameless = CLEAN.replace('    hosts: "a[1-2]"\n', "").replace("nodes: 2", f"nodes: {nodes}", 1)
    (row,) = (row for row in checking.check(put(nameless)).facts()["findings"] if row["check"] == "launch_names")
    assert row["better"] == f"hosts: {hosts} in the cluster; with your names"


def test_the_command_prints_one_line_for_a_clean_file(put, run):
    seen = run("check", put(CLEAN))
    assert (seen.code, seen.out, seen.err) == (0, "topo.yaml: nothing is odd (10 checks).\n", "")


def test_the_command_prints_findings_and_ends_with_code_0(put, run):
    seen = run("check", put(CLEAN + "memory_headroom: 0\n"))
    assert seen.code == 0
    assert seen.out == (
        "topo.yaml:25: memory_headroom\n"
        "  odd:   plans may use all memory of a device\n"
        "  means: predicted memory is a few percent off, so that such a plan may run out of memory\n"
        "  right: 0.08, the default; leave the key out\n"
        "1 remark (10 checks). The file is valid.\n"
    )


def test_json_is_one_document_with_a_format(put, run):
    document = json.loads(run("check", put(CLEAN + "memory_headroom: 0\n"), "--json").out)
    assert {key: document[key] for key in ("format", "topology", "file")} == {
        "format": "holmes-sim/check/1",
        "topology": "fleet",
        "file": "topo.yaml",
    }
    assert [list(row) for row in document["findings"]] == [["check", "line", "key", "odd", "means", "better"]]


def test_a_wrong_file_ends_with_code_2(put, run):
    seen = run("check", put(CLEAN.replace("nvlink3", "nvlink33")))
    assert (seen.code, seen.out) == (2, "")
    assert seen.err.startswith(
        "error: topo.yaml:9: clusters.a.node.intra_node: interconnect 'nvlink33' is not in the catalogue"
    )
    with pytest.raises(TopologyError):
        checking.check("nosuch.yaml")
