"""The command holmes-sim import: the topology that it writes, its messages, and a plan of an imported topology."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sim.formats import topology
from tests.holmes_sim.importing.sources import SAMPLES

CONF = SAMPLES / "slurm_conf-two-fabrics.conf"
NODE = SAMPLES / "nccl_topology-rtx-3090.xml"
WRITTEN = f"""\
# Read: {CONF} (Slurm topology.conf or scontrol show topology)
# Read: {NODE} (NCCL topology XML)
# Read: cluster ib: 8 hosts ({CONF}:2)
# Read: cluster ib: 8 x rtx-3090 in a node ({NODE}:5)
# Read: cluster ib: pcie4 joins the devices ({NODE}:5: PCIe)
# Read: cluster ib: 1 x infiniband at 56 Gbit/s ({NODE}:34)
# Read: cluster ib: 2 leaves ({CONF}:2)
# Read: cluster roce: 8 hosts ({CONF}:4)
# Read: cluster roce: 8 x rtx-3090 in a node ({NODE}:5)
# Read: cluster roce: pcie4 joins the devices ({NODE}:5: PCIe)
# Read: cluster roce: 1 x infiniband at 56 Gbit/s ({NODE}:34)
# Read: cluster roce: 2 leaves ({CONF}:4)
# Missing: cluster ib: oversubscription of its leaves; 1 is assumed; output of ibnetdiscover has it
# Missing: cluster roce: oversubscription of its leaves; 1 is assumed; output of ibnetdiscover has it
# Missing: links between the clusters, with bandwidth and latency; no source has them; without them no plan spans clusters
format: holmes-sim/topology/1
name: fleet
"""


def test_a_topology_is_written_after_its_sources(run, tmp_path):
    seen = run("import", CONF, NODE, "-o", tmp_path / "fleet.yaml")
    text = (tmp_path / "fleet.yaml").read_text()
    assert (seen.code, seen.out) == (0, "")
    assert text.startswith(WRITTEN)
    notes = [line.removeprefix("# ") for line in text.splitlines() if line.startswith("# ")]
    assert seen.err.splitlines() == [*notes, f"Written to {tmp_path}/fleet.yaml."]
    loaded = topology.load(tmp_path / "fleet.yaml")
    assert [cluster.hosts[0] for cluster in loaded.fleet.clusters] == ["gpu001", "gpu009"]
    assert loaded.fleet.clusters[0].node.nics[0].names == ("mlx5_0",)


def test_without_an_output_the_topology_is_printed(run, tmp_path):
    assert run("import", CONF, NODE, "--name", "fleet").out == run("import", CONF, NODE, "--name", "fleet").out
    assert run("import", CONF, NODE, "--name", "fleet").out.startswith(WRITTEN)


def test_json_is_one_document(run, tmp_path):
    seen = run("import", NODE, "--json", "-o", tmp_path / "one.yaml")
    document = json.loads(seen.out)
    assert list(document) == ["format", "topology", "read", "assumed", "missing"]
    assert document["topology"] == topology.load(tmp_path / "one.yaml").facts()
    assert document["assumed"] == ["no source lists hosts: each cluster gets one node"]
    assert seen.err == ""


def test_an_imported_topology_is_planned(run, tmp_path):
    assert run("import", CONF, f"ib={NODE}", f"roce={NODE}", "-o", tmp_path / "fleet.yaml").code == 0
    work = ("--model", "gpt-1.7b", "--global-batch-size", 16, "--seq-len", 512, "--strategy", "megatron")
    pins = ("--tp", 8, "--pp", 1, "--dp", 16, "--microbatch-size", 1, "--schedule", "1f1b")
    trunk = "links: [{between: [ib, roce], type: infiniband, bandwidth: 56 Gbit/s, latency: 5 us}]\n"
    (tmp_path / "fleet.yaml").write_text((tmp_path / "fleet.yaml").read_text() + trunk)
    assert run("plan", tmp_path / "fleet.yaml", *work, *pins).code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nosuch.conf",), "nosuch.conf: no such file"),
        ((CONF, "-o", CONF), f"{CONF}: given twice; it would be overwritten"),
        ((CONF, "-o", "/nosuch/x.yaml"), "/nosuch/x.yaml: cannot be written: No such file or directory"),
        (
            (SAMPLES / "README.md",),
            f"{SAMPLES}/README.md: not a known kind of source; known kinds: ibnetdiscover, ibstat",
        ),
        (
            (SAMPLES / "kubernetes-mig.json",),
            f"{SAMPLES}/kubernetes-mig.json:9: A100-SXM4-40GB-MIG-1g.5gb is part of a device",
        ),
        ((CONF, f"x={NODE}"), "x=...: no host belongs to 'x'; known: ib, leaf1, leaf2, leaf3, leaf4, roce"),
    ],
    ids=range(6),
)
def test_wrong_input_is_one_line_and_exit_code_2(arguments, message, run, tmp_path):
    seen = run("import", *arguments)
    assert (seen.code, seen.out) == (2, "")
    assert seen.err.startswith(f"error: {message}")
    assert seen.err.count("\n") == 1


def test_nothing_is_written_if_a_fact_is_missing(run, tmp_path):
    seen = run("import", CONF, "-o", tmp_path / "x.yaml")
    assert seen.code == 2
    assert seen.err.splitlines()[0].startswith("error: no source names the devices of cluster ib; sources that do: nvidia")
    assert not (tmp_path / "x.yaml").exists()


def test_the_name_of_a_file_may_have_an_equals_sign(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("ib=node.xml").write_text(NODE.read_text())
    assert json.loads(run("import", "ib=node.xml", "--json").out)["topology"]["clusters"].keys() == {"cluster"}


def test_help_shows_how_a_node_is_given_for_a_cluster(run):
    words = " ".join(run("import", "--help").out.replace("│", " ").split())
    assert "CLUSTER=FILE" in words
    assert "applies to all nodes" in words
