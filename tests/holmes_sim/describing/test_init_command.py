"""The command holmes-sim init: what it writes, asks and refuses, and that its file can be planned and checked."""

from __future__ import annotations

import io
import json
import shutil
import sys

import pytest

from holmes_sim import commands
from holmes_sim.describing import host_list, host_probe
from sim.formats.documents import parse
from tests.holmes_sim.describing.recorded import LISTED, SAMPLES, Hosts, dgx, probed, rtx, sample

WRITTEN = """\
# Written by holmes-sim init. Comments say what a key is; where its value comes
# from. Please correct what is a guess.
# Assumed: ib.txt: ports that are not active are left out: mlx5_1, mlx5_2
# Assumed: no source lists hosts: each cluster gets one node
format: holmes-sim/topology/1  # kind of this file
name: topo  # name of the fleet
source: 'holmes-sim init: node.txt, ib.txt'  # how this file was made
clusters:  # a cluster: equal nodes below one network
  cluster:
    nodes: 1  # number of nodes (hosts); guess: no source lists hosts
    node:  # all nodes of a cluster are equal
      devices:  # accelerators of a node; read from node.txt:1
        type: h100-sxm5-80gb  # a name of `holmes-sim list devices`
        count: 8  # number in a node
      # joins the devices of a node (`holmes-sim list links`); read from
      # node.txt:9: NV18 between all pairs
      intra_node: nvlink4
      nics:  # NICs of a node, by type
        # read from ib.txt:1
        - type: infiniband  # a name of `holmes-sim list nics`
          bandwidth: 400 Gbit/s  # of one NIC, in each direction
          count: 8  # number in a node
          # names on the hosts, for launches
          names: [mlx5_0, mlx5_3, mlx5_4, mlx5_5, mlx5_6, mlx5_9, mlx5_10, mlx5_11]
        # read from ib.txt:154
        - type: roce  # a name of `holmes-sim list nics`
          bandwidth: 100 Gbit/s  # of one NIC, in each direction
          count: 2  # number in a node
          names: [mlx5_7, mlx5_8]  # names on the hosts, for launches
workload:  # what is trained
  # a name of `holmes-sim list models`, or a config.json; guess
  model: llama-3-8b
  global_batch_size: 64  # sequences per optimizer step; guess
  seq_len: 2048  # tokens per sequence; given on the command line
  precision: bf16  # of matrix products; guess
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with files of a node of eight H100."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "node.txt").write_text(LISTED + sample("nvidia_smi-h100-nics.txt"), encoding="utf-8")
    shutil.copy(SAMPLES / "ibstat-h100.txt", "ib.txt")
    return tmp_path


@pytest.fixture
def on(monkeypatch):
    """A function that makes recorded hosts answer."""

    def answered(hosts: Hosts) -> None:
        monkeypatch.setattr(host_probe.here, "__defaults__", (hosts,))
        monkeypatch.setattr(host_list.ask, "__defaults__", (hosts,))

    return answered


class Terminal(io.StringIO):
    """A stdin that is a terminal with typed lines."""

    def isatty(self) -> bool:
        return True


def test_files_give_a_commented_topology(folder, run):
    seen = run("init", "node.txt", "ib.txt", "--seq-len", 2048)
    assert (seen.code, seen.out) == (0, "")
    assert (folder / "topo.yaml").read_text() == WRITTEN
    assert seen.err.splitlines()[-2:] == [
        "Written to topo.yaml.",
        "Next: holmes-sim check topo.yaml, then holmes-sim plan topo.yaml",
    ]
    assert commands.load("topo.yaml").fleet.devices == 8
    assert run("check", "topo.yaml").out == "topo.yaml: nothing is odd (10 checks).\n"


def test_a_file_is_replaced_only_by_force(folder, run):
    (folder / "topo.yaml").write_text("mine\n")
    seen = run("init", "node.txt", "ib.txt")
    assert (seen.code, seen.out) == (2, "")
    assert seen.err == "error: topo.yaml: exists already; choose another file with -o, or replace it with --force\n"
    assert (folder / "topo.yaml").read_text() == "mine\n"
    assert run("init", "node.txt", "ib.txt", "--force").code == 0
    assert (folder / "topo.yaml").read_text().startswith("# Written by")


def test_a_source_is_not_overwritten(folder, run):
    seen = run("init", "node.txt", "ib.txt", "-o", "ib.txt", "--force")
    assert (seen.code, seen.err) == (2, "error: ib.txt: given twice; it would be overwritten\n")
    assert (folder / "ib.txt").read_text() == sample("ibstat-h100.txt")


def test_a_gpu_host_without_arguments_is_described_and_planned(folder, run, on):
    on(Hosts(here=dgx("gpu01")))
    seen = run("init", "--json", "--model", "gpt-1.7b", "--global-batch-size", 16)
    document = json.loads(seen.out)
    assert document["topology"]["source"] == "holmes-sim init on host gpu01"
    workload = {"model": "gpt-1.7b", "global_batch_size": 16, "seq_len": 2048, "precision": "bf16"}
    assert document["topology"]["workload"] == workload, "the model has 2,048 learned positions"
    text = (folder / "topo.yaml").read_text()
    assert "# names of the hosts, for launches; read from host gpu01" in text
    assert "host_memory: 2015 GiB\n" in text
    assert "# memory of its CPUs, for offload of optimizer state; read from gpu01" in text
    pins = ("--tp", 2, "--pp", 1, "--dp", 4, "--microbatch-size", 1, "--schedule", "1f1b")
    assert run("plan", "topo.yaml", "--strategy", "megatron", *pins).code == 0


def test_two_clusters_get_a_link_to_fill_in(folder, run, on):
    (folder / "hosts.txt").write_text("gpu[01-02]\npc1\n")
    on(Hosts(gpu01=dgx("a"), gpu02=dgx("b"), pc1=rtx("c")))
    seen = run("init", "--hosts", "hosts.txt")
    assert seen.code == 0
    assert "Missing: links between the clusters; no plan spans clusters until they are filled in at the end of" in seen.err
    text = (folder / "topo.yaml").read_text()
    assert text.endswith(
        "# the only paths between clusters: remove the # in front of these lines and\n"
        "# correct the numbers, which are guesses\n"
        "# links:\n"
        "#   - between: [h100-sxm5-80gb, rtx-4090]\n"
        "#     type: ethernet\n"
        "#     bandwidth: 25 Gbit/s\n"
        "#     latency: 50 us\n"
    )
    head, _, links = text.rpartition("# links:\n")
    (folder / "topo.yaml").write_text(head + "links:\n" + links.replace("#", ""))
    assert commands.load("topo.yaml").fleet.trunks[0].bandwidth == 3.125e9


def test_devices_of_two_vendors_without_ethernet_get_a_hint(folder, run, on):
    """RDMA joins only devices of one vendor."""
    (folder / "hosts.txt").write_text("a\nb\n")
    ib = "".join(f"/sys/class/infiniband/m0/ports/1/{line}\n" for line in ("rate:200 Gb/sec", "link_layer:InfiniBand"))
    query = "name, memory.total [MiB]\nNVIDIA A100-SXM4-80GB, 81920 MiB\n"
    amd = probed("b", rocm=sample("rocm_smi-mi300x-vf.txt"), sys=ib)
    on(Hosts(a=probed("a", query=query, sys=ib), b=amd))
    assert run("init", "--hosts", "hosts.txt").code == 0
    written = (folder / "topo.yaml").read_text().replace("\n# ", " ")
    why = "infiniband joins no devices of amd and nvidia, whose libraries differ"
    assert f"a100-sxm4-80gb and mi300x: {why}; first give their nodes {{type: ethernet" in written


def test_a_measured_link_inside_a_node_is_written_key_by_key(folder, run):
    assert run("init", SAMPLES / "nccl_tests-t4.json").code == 0
    (cluster,) = commands.load("topo.yaml").fleet.clusters
    assert cluster.node.intra_node.name == "measured"
    assert "      intra_node:\n        name: measured\n" in (folder / "topo.yaml").read_text()


def test_nothing_is_written_if_a_host_does_not_answer(folder, run, on):
    (folder / "hosts.txt").write_text("gpu01\nlogin\n")
    on(Hosts(gpu01=dgx("a"), login=probed("login")))
    seen = run("init", "--hosts", "hosts.txt")
    assert (seen.code, seen.out) == (2, "")
    assert seen.err == "error: hosts.txt:2: login has no GPU that nvidia-smi or rocm-smi lists; leave it out of the list\n"
    assert not (folder / "topo.yaml").exists()


def test_without_gpus_and_terminal_one_line_says_what_to_give(folder, run, on, monkeypatch):
    on(Hosts(here=probed("laptop")))
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    seen = run("init")
    assert (seen.code, seen.out) == (2, "")
    assert seen.err.startswith("error: this host has no GPU that nvidia-smi or rocm-smi lists, and there is no terminal for ")
    assert "--hosts FILE" in seen.err
    assert seen.err.count("\n") == 1


def test_questions_on_a_terminal(folder, run, on, monkeypatch):
    """Wrong answers are asked again; Enter takes the default, which the file calls a guess, unlike a default that is typed."""
    on(Hosts(here=probed("laptop")))
    first = ("h200", "3", "h20 0", "NVIDIA H200", "", "", "2 TB of it", "2000", "", "200", "8", "")
    second = ("h200", "1", "12", "rtx-4090", "4", "", "", "", "10", "")
    lines = ("2", *first, *second, "", "10", "5 ms", "gpt-1.7b", "", "1024")
    monkeypatch.setattr(sys, "stdin", Terminal("\n".join(lines) + "\n"))
    seen = run("init")
    assert seen.code == 0
    assert "'h20 0' is not in the catalogue" in seen.err
    assert "'2 TB of it' is not a size; write for example '80 GiB'" in seen.err
    assert "'h200' is the name of another cluster" in seen.err
    text = (folder / "topo.yaml").read_text()
    assert max(len(line) for line in text.splitlines()) <= 80
    value = parse("x", text).value
    assert value == {
        "format": "holmes-sim/topology/1",
        "name": "topo",
        "source": "answers to holmes-sim init",
        "clusters": {
            "h200": {
                "nodes": 3,
                "node": {
                    "devices": {"type": "h200-sxm-141gb", "count": 8},
                    "intra_node": "nvlink4",
                    "host_memory": "2000 GiB",
                    "nics": [
                        {"type": "infiniband", "bandwidth": "200 Gbit/s", "count": 8},
                        {"type": "ethernet", "bandwidth": "25 Gbit/s", "count": 1},
                    ],
                },
            },
            "1": {
                "nodes": 12,
                "node": {
                    "devices": {"type": "rtx-4090", "count": 4},
                    "intra_node": "pcie4",
                    "nics": [{"type": "ethernet", "bandwidth": "10 Gbit/s", "count": 1}],
                },
            },
        },
        "links": [{"between": ["h200", "1"], "type": "ethernet", "bandwidth": "10 Gbit/s", "latency": "5 ms"}],
        "workload": {"model": "gpt-1.7b", "global_batch_size": 1024, "seq_len": 1024, "precision": "bf16"},
    }
    assert "    nodes: 3  # number of nodes (hosts); your answer\n" in text
    assert (
        "      host_memory: 2000 GiB\n" in text
        and "# memory of its CPUs, for offload of optimizer state; your answer\n" in text
    )
    assert "          count: 8  # number in a node; your answer\n" in text  # NICs, typed
    assert "        count: 8  # number in a node; guess: default\n" in text  # devices, by Enter
    assert commands.load("topo.yaml").fleet.devices == 72


PCS = [line for name, rate in (("a", "10"), ("b", "2.5"), ("c", "")) for line in (name, "1", "rtx-3090", "1", "", "", rate, "")]


def test_one_network_joins_three_clusters_with_three_questions(folder, run, on, monkeypatch):
    """Five PCs on a switch are not asked for ten links; the default of the rate is that of the slowest NIC."""
    on(Hosts(here=probed("laptop")))
    monkeypatch.setattr(sys, "stdin", Terminal("\n".join(("3", *PCS, "", "", "10 us", "gpt-1.7b", "", "")) + "\n"))
    assert run("init").code == 0
    text = (folder / "topo.yaml").read_text()
    link = {"type": "ethernet", "bandwidth": "1 Gbit/s", "latency": "10 us"}
    assert parse("x", text).value["links"] == [{"between": list(pair), **link} for pair in ("ab", "ac", "bc")]
    assert text.count("latency: 10 us  # added by the link, one way; your answer\n") == 3
    assert text.count("guess: default\n    bandwidth: 1 Gbit/s\n") == 3


def test_clusters_that_no_network_joins_are_asked_for_each_link(folder, run, on, monkeypatch):
    on(Hosts(here=probed("laptop")))
    links = ("none", "none", "", "1", "5 ms", "none")
    monkeypatch.setattr(sys, "stdin", Terminal("\n".join(("3", *PCS, *links, "gpt-1.7b", "", "")) + "\n"))
    assert run("init").code == 0
    link = {"between": ["a", "c"], "type": "ethernet", "bandwidth": "1 Gbit/s", "latency": "5 ms"}
    assert parse("x", (folder / "topo.yaml").read_text()).value["links"] == [link]


class Interrupted(Terminal):
    """A terminal on which Ctrl-C is typed after the last line."""

    def readline(self, *size: int) -> str:
        line = super().readline(*size)
        if not line:
            raise KeyboardInterrupt
        return line


def test_an_interrupt_without_answers_writes_nothing(folder, run, on, monkeypatch):
    on(Hosts(here=probed("laptop")))
    monkeypatch.setattr(sys, "stdin", Interrupted(""))
    seen = run("init")
    assert seen.code == 130
    assert seen.err.endswith("\nNothing is written.\ninterrupted\n")
    assert {path.name for path in folder.iterdir()} == {"node.txt", "ib.txt"}


@pytest.mark.parametrize("terminal", [Interrupted, Terminal], ids=["Ctrl-C", "end of input"])
def test_init_goes_on_where_it_was_stopped(folder, run, on, monkeypatch, terminal):
    on(Hosts(here=probed("laptop")))
    monkeypatch.setattr(sys, "stdin", terminal("1\npcs\n\nrtx-4090\n2\n"))
    seen = run("init")
    assert seen.code == 130
    told = "topo.yaml is not written. The same command goes on after the 5 answers in topo.yaml.answers."
    assert told in seen.err.splitlines()
    assert not (folder / "topo.yaml").exists()
    assert (folder / "topo.yaml.answers").read_text().splitlines()[2:] == [
        "pcs: number of nodes\t",
        "pcs: device (holmes-sim list devices)\trtx-4090",
        "pcs: devices in a node\t2",
    ]
    monkeypatch.setattr(sys, "stdin", Terminal("\n" * 10))
    seen = run("init")
    assert seen.code == 0
    assert "Go on after the 5 answers in topo.yaml.answers? [Y/n]" in seen.err
    assert "\npcs: device (holmes-sim list devices) [h100-sxm5-80gb]: rtx-4090\n" in seen.err
    (cluster,) = commands.load("topo.yaml").fleet.clusters
    assert (cluster.name, cluster.nodes, cluster.node.count) == ("pcs", 4, 2)
    text = (folder / "topo.yaml").read_text()
    assert "nodes: 4  # number of nodes (hosts); guess: default\n" in text
    assert "count: 2  # number in a node; your answer\n" in text
    assert not (folder / "topo.yaml.answers").exists()


@pytest.mark.parametrize(
    ("kept", "typed"),
    [
        ("Number of clusters (equal nodes below one network)\t1\nCluster 1: name\tpcs\n", "n\n\nmine\n"),
        ("Number of clusters (equal nodes below one network)\tmany\n", "y\n\nmine\n"),
        ("Number of clusters\t1\n", "y\n\nmine\n"),
    ],
    ids=["declined", "no longer right", "another question"],
)
def test_other_answers_are_asked_again(folder, run, on, monkeypatch, kept, typed):
    on(Hosts(here=probed("laptop")))
    (folder / "topo.yaml.answers").write_text(kept)
    monkeypatch.setattr(sys, "stdin", Terminal(typed + "\n" * 20))
    assert run("init").code == 0
    assert [cluster.name for cluster in commands.load("topo.yaml").fleet.clusters] == ["mine"]


def test_a_damaged_file_of_answers_is_one_line(folder, run, on, monkeypatch):
    on(Hosts(here=probed("laptop")))
    (folder / "topo.yaml.answers").write_text("Cluster 1: name\n")
    monkeypatch.setattr(sys, "stdin", Terminal(""))
    seen = run("init")
    assert (seen.code, seen.out) == (2, "")
    told = "topo.yaml.answers:1: a question, a tab and an answer are expected; remove the file to begin anew"
    assert seen.err.splitlines()[-1] == f"error: {told}"


@pytest.mark.parametrize(("typed", "model", "origin"), [("", "gpt-345m", "guess"), ("llama-3-8b", "llama-3-8b", "your answer")])
def test_the_model_is_asked_for_on_small_fleets(folder, run, on, monkeypatch, typed, model, origin):
    """Two PCs have room for the smallest model only, but not to fine-tune: adapters of larger ones fit."""
    on(Hosts(here=probed("laptop")))
    monkeypatch.setattr(
        sys, "stdin", Terminal("\n".join(("1", "pcs", "2", "rtx-4090", "", "", "", "", "", typed, "", "")) + "\n")
    )
    seen = run("init")
    assert (seen.code, "Model to train [gpt-345m]:" in seen.err) == (0, True)
    assert commands.load("topo.yaml").workload.model.name == model
    text = (folder / "topo.yaml").read_text()
    assert f"a config.json; {origin}" in text


def test_a_model_that_fits_is_guessed(folder, run, on):
    """One RTX 4090 has room for the smallest model only."""
    on(Hosts(here=probed("pc", query="name, memory.total [MiB]\nNVIDIA GeForce RTX 4090, 24564 MiB\n")))
    assert run("init").code == 0
    workload = commands.load("topo.yaml").workload
    assert (workload.model.name, workload.global_batch_size, workload.seq_len) == ("gpt-345m", 8, 1024)
    assert round(workload.model.parameters / 1e6) == 355
