"""holmes-sim import as it is typed: what it writes, what it says, and that a plan can be made of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sim.formats import topology

SAMPLES = Path(__file__).parents[1] / "importers" / "samples"
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
# Missing: cluster ib: oversubscription of its leaves; 1 is taken; ibnetdiscover would tell
# Missing: cluster roce: oversubscription of its leaves; 1 is taken; ibnetdiscover would tell
# Missing: links between the clusters, with bandwidth and latency; no source tells them, no plan spans clusters without
format: holmes-sim/topology/1
name: fleet
"""


def test_a_topology_is_written_with_what_was_read_in_front(run, tmp_path):
    seen = run("import", CONF, NODE, "-o", tmp_path / "fleet.yaml")
    text = (tmp_path / "fleet.yaml").read_text()
    assert (seen.code, seen.out) == (0, "")
    assert text.startswith(WRITTEN)
    told = [line.removeprefix("# ") for line in text.splitlines() if line.startswith("# ")]
    assert seen.err.splitlines() == [*told, f"Written to {tmp_path}/fleet.yaml."]
    loaded = topology.load(tmp_path / "fleet.yaml")
    assert [cluster.hosts[0] for cluster in loaded.fleet.clusters] == ["gpu001", "gpu009"]
    assert loaded.fleet.clusters[0].node.nics[0].names == ("mlx5_0",)


def test_without_an_output_the_topology_is_printed(run, tmp_path):
    assert run("import", CONF, NODE, "--name", "fleet").out == run("import", CONF, NODE, "--name", "fleet").out
    assert run("import", CONF, NODE, "--name", "fleet").out.startswith(WRITTEN)


def test_json_is_one_document(run, tmp_path):
    seen = run("import", NODE, "--json", "-o", tmp_path / "one.yaml")
    told = json.loads(seen.out)
    assert list(told) == ["topology", "read", "assumed", "missing"]
    assert told["topology"] == topology.load(tmp_path / "one.yaml").facts()
    assert told["assumed"] == ["no source tells hosts: one node in each cluster"]
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
        ((CONF, "-o", CONF), f"{CONF}: named twice; it would be written over"),
        ((CONF, "-o", "/nosuch/x.yaml"), "/nosuch/x.yaml: cannot be written: No such file or directory"),
        ((SAMPLES / "README.md",), f"{SAMPLES}/README.md: is none of the sources that can be read: ibnetdiscover, Kubernetes"),
        (
            (SAMPLES / "kubernetes-mig.json",),
            f"{SAMPLES}/kubernetes-mig.json:9: A100-SXM4-40GB-MIG-1g.5gb is a part of a device",
        ),
        ((CONF, f"x={NODE}"), "x=...: no host stands under 'x'; known: ib, leaf1, leaf2, leaf3, leaf4, roce"),
    ],
    ids=range(6),
)
def test_what_is_wrong_is_one_line_and_exit_code_2(arguments, message, run, tmp_path):
    seen = run("import", *arguments)
    assert (seen.code, seen.out) == (2, "")
    assert seen.err.startswith(f"error: {message}")
    assert seen.err.count("\n") == 1


def test_nothing_is_written_where_something_is_lacking(run, tmp_path):
    seen = run("import", CONF, "-o", tmp_path / "x.yaml")
    assert seen.code == 2
    assert seen.err.splitlines()[0].startswith("error: no source tells the devices of cluster ib; nvidia-smi -L")
    assert not (tmp_path / "x.yaml").exists()


def test_a_file_whose_name_has_an_equals_sign_is_read_as_it_stands(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("ib=node.xml").write_text(NODE.read_text())
    assert json.loads(run("import", "ib=node.xml", "--json").out)["topology"]["clusters"].keys() == {"cluster"}


def test_help_says_how_a_node_is_given_for_a_cluster(run):
    words = " ".join(run("import", "--help").out.replace("│", " ").split())
    assert "CLUSTER=FILE" in words
    assert "holds for all nodes" in words
