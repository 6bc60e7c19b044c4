"""Malformed input of each kind is one line that names file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from holmes_sim import importers
from sim.errors import HolmesError

SAMPLES = Path(__file__).parent / "samples"
NODE = '"kind": "Node", "metadata": {"name": "n", "labels": {"nvidia.com/gpu.count": "8", "nvidia.com/gpu.product": "%s"}}'
MATRIX = "\tGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\tNV4\t X \n"
SWITCH = 'Switch\t8 "S-1"\t# "leaf" base port 0 lid 0 lmc 0\n'


def nodes(*items: str) -> str:
    return '{"apiVersion": "v1", "kind": "List", "items": [\n' + ",\n".join(items) + "]}\n"


CASES = [
    ("SwitchName=a Nodes=n[1-2\n", r"x:1: 'n\[1-2' is no list of hosts such as gpu\[001-004,007\]"),
    ("# a\nSwitchName=a Speed=3\n", r"x:2: 'Speed=3' is none of KEY=VALUE; known keys: SwitchName, Switches"),
    ("SwitchName=a Nodes = n1\n", r"x:1: '=' is none of KEY=VALUE|x:1: 'Nodes' is none of KEY=VALUE"),
    ("SwitchName=a Nodes=n1\nNodes=n2\n", r"x:2: SwitchName=... or BlockName=... is expected first"),
    ("SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2\n", r"x:2: 'a' is described twice; x:1 has it already"),
    ("SwitchName=a Switches=b\n", r"x:1: switch 'a' is above 'b', which is not described"),
    ("SwitchName=a Switches=b\nSwitchName=b Switches=a\n", r"x:\d: the switches .* go round in a circle"),
    ("SwitchName=a Switches=c\nSwitchName=b Switches=c\nSwitchName=c Nodes=n\n", r"x:2: switch 'c' is under 'a' and 'b'; one"),
    ("SwitchName=a Nodes=n1\nSwitchName=b Nodes=n[1-2]\n", r"x:2: host 'n1' is under 'a' and 'b'; one is expected"),
    ("BlockName=a Nodes=n1\nSwitchName=b Nodes=n2\n", r"x:2: switch 'b' stands among blocks; a file has one kind of them"),
    ("RingName=a Nodes=n[1-4]\n", r"x:1: topology/ring is not read; topology/tree and topology/block are"),
    ("- topology: a\n  tree: {switches: [{switch: s, nodes: 'n[1'}]}\n", r"x:2: \[0\].tree.switches\[0\].nodes: 'n\[1' is no"),
    ("- topology: a\n  tree:\n    switches:\n    - nodes: n1\n", r"x:4: \[0\].tree.switches\[0\]: switch: NAME is expected"),
    ("- topology: a\n  tree: 3\n", r"x:2: \[0\].tree.switches: a list of switches is expected here"),
    ("- topology: a\n  ring: {}\n", r"x:1: \[0\]: a tree, block or flat is expected here, not ring"),
    ("- topology: a\n  flat: true\n", r"x:1: no topology in it lists hosts; a tree or blocks are expected"),
    ("- topology: a\n  tree: [\n", r"x:3: not well-formed YAML"),
    ("switches: {s: {nodes: ['n[1']}}\n", r"x:1: switches.s.nodes: 'n\[1' is no list of hosts"),
    ("switches:\n  s:\n    nodes: n1\n", r"x:3: switches.s.nodes: a list of hosts is expected here"),
    ("switches:\n- switches: [a]\n", r"x:2: switches\[0\]: name: NAME is expected here"),
    ("switches: 3\n", r"x:1: switches: a mapping or a list is expected here"),
    ('{"instances": [\n{"id": 3, "network_layers": ["a"]}]}', r"x:2: an instance needs an id and network_layers"),
    ('{"switches": {"a": {"nodes": ["n1"]}\n', r"x:2: not well-formed"),
    ("switches: {}\n", r"x:1: no host in it"),
    (MATRIX.replace("GPU1\tNV4", "GPU1"), r"x:3: 2 cells of X, NV#, PIX, PXB, PHB, NODE or SYS are expected"),
    (MATRIX.replace("NV4\n", "FOO\n"), r"x:2: 2 cells of X, NV#"),
    ("\tGPU0\tGPU1\nGPU0\t X \tNV4\n", r"x:1: 2 GPUs in the header, 1 rows below it"),
    ("GPU 0: A (UUID: 1)\nGPU 1: B (UUID: 2)\n" + MATRIX, r"x: GPUs of several kinds in one node \(A, B\)"),
    ("GPU 0: A (UUID: 1)\n" + MATRIX, r"x:2: 2 GPUs in the matrix, 1 listed above it"),
    ('<system version="1">\n<cpu></system>', r"x:2: not well-formed XML: mismatched tag"),
    ('<!DOCTYPE a [<!ENTITY b "b">]>\n<system version="1"/>', r"x:1: a document type is refused; NCCL writes none"),
    ('<system version="1">\n</system>', r"x:1: no GPU and no NIC in it"),
    ('<system version="1">\n<pci class="0x0207"><nic><net speed="fast"/></nic></pci></system>', r"x:2: speed='fast' of <net>"),
    (
        '<system version="1"><pci vendor="a" device="b"><gpu/></pci><pci vendor="a" device="c"><gpu/></pci></system>',
        r"x: GPUs of several kinds in one node \(a:b, a:c\)",
    ),
    ("#  Rank  0 Pid 1 on h device  0 [0x00] A\n", r"x: tells of 1 ranks, a link joins two or more"),
    ('{"nccl_version": 1, "results": []}\n', r"x:1: no report of nccl-tests -J \('config'\); config.devices with hostname"),
    ('{"nccl_version": 1,\n', r"x:2: not well-formed JSON"),
    (SWITCH + "[1]\tH-2\n", r'x:2: a port such as \[1\] "H-0002c903"\[1\]'),
    (SWITCH + '[1]\t"H-2"[1](2) \t# "Mellanox Technologies Aggregation Node" lid 0 4xNDR\n', r"x:1: no port of a switch"),
    (nodes('{"kind": "Node"}'), r"x:2: items\[0\].metadata: name: NAME is expected here"),
    (nodes("{" + NODE % "A" + "}", "{" + NODE % "A" + "}"), r"x: node 'n' is listed twice"),
    (nodes("{" + NODE % "NVIDIA-A10G-SHARED" + "}"), r"x:2: NVIDIA-A10G-SHARED is a part of a device"),
    (nodes("{" + (NODE % "A").replace('"8"', '"many"') + "}"), r"x:2: 'many' is no number of devices"),
    (nodes('{"kind": "Node", "metadata": {"name": "n"}}'), r"x: none of 1 nodes has nvidia.com/gpu.count or amd.com/gpu"),
    (nodes("{" + NODE % "A" + "}")[:-4], r"x:\d: not well-formed JSON"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), CASES, ids=range(len(CASES)))
def test_malformed_input_is_one_line(text, message):
    importer = importers.recognised(text, "x")
    with pytest.raises(HolmesError, match=f"^(?:{message})") as caught:
        importer.read(text, "x")
    assert "\n" not in str(caught.value)


def test_an_entity_bomb_is_refused_before_it_bursts():
    bomb = '<?xml version="1.0"?>\n<!DOCTYPE system [\n<!ENTITY a "aaaaaaaaaa">\n' + "".join(
        f'<!ENTITY {after} "{f"&{before};" * 10}">\n' for before, after in zip("abcdefgh", "bcdefghi", strict=True)
    )
    text = bomb + ']>\n<system version="1"><cpu arch="&i;"/></system>\n'
    with pytest.raises(HolmesError, match=r"^x:2: a document type is refused; NCCL writes none$"):
        importers.recognised(text, "x").read(text, "x")


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*-*")), ids=lambda path: path.name)
def test_a_sample_that_is_cut_short_is_read_or_told_in_one_line(path):
    """Wherever a file ends, no traceback comes of it."""
    text = path.read_text(encoding="utf-8")
    for cut in range(0, len(text), max(len(text) // 60, 1)):
        try:
            importers.recognised(text[:cut], "x").read(text[:cut], "x")
        except HolmesError as error:
            assert str(error).startswith("x:")
            assert "\n" not in str(error)
