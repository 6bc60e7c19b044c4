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


PORT = "CA 'mlx5_0'\nPort 1:\nState: %s\n"
GPU = "8a:00.0 3D controller [0302]: NVIDIA [10de:%s]\n"
CASES = [
    ("SwitchName=a Nodes=n[1-2\n", r"x:1: 'n\[1-2' is not a list of hosts; write for example gpu\[001-004,007\]"),
    ("# a\nSwitchName=a Speed=3\n", r"x:2: 'Speed=3' is not a KEY=VALUE pair with a known key; known keys: SwitchName"),
    ("SwitchName=a Nodes = n1\n", r"x:1: '=' is not a KEY=VALUE pair|x:1: 'Nodes' is not a KEY=VALUE pair"),
    ("SwitchName=a Nodes=n1\nNodes=n2\n", r"x:2: expected SwitchName=... or BlockName=... first"),
    ("SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2\n", r"x:2: 'a' is described twice; first at x:1"),
    ("SwitchName=a Switches=b\n", r"x:1: switch 'a' has the child 'b', which is not described"),
    ("SwitchName=a Switches=b\nSwitchName=b Switches=a\n", r"x:\d: the switches .* form a cycle"),
    ("SwitchName=a Switches=c\nSwitchName=b Switches=c\nSwitchName=c Nodes=n\n", r"x:2: switch 'c' is below both 'a' and 'b'"),
    ("SwitchName=a Nodes=n1\nSwitchName=b Nodes=n[1-2]\n", r"x:2: host 'n1' is below both 'a' and 'b'"),
    ("BlockName=a Nodes=n1\nSwitchName=b Nodes=n2\n", r"x:2: switch 'b' in a file with blocks"),
    ("RingName=a Nodes=n[1-4]\n", r"x:1: topology/ring is not supported; use topology/tree or topology/block"),
    ("- topology: a\n  tree: {switches: [{switch: s, nodes: 'n[1'}]}\n", r"x:2: \[0\].tree.switches\[0\].nodes: 'n\[1' is no"),
    ("- topology: a\n  tree:\n    switches:\n    - nodes: n1\n", r"x:4: \[0\].tree.switches\[0\]: expected switch: NAME"),
    ("- topology: a\n  tree: 3\n", r"x:2: \[0\].tree.switches: expected a list of switches"),
    ("- topology: a\n  ring: {}\n", r"x:1: \[0\]: expected tree, block or flat, not ring"),
    ("- topology: a\n  flat: true\n", r"x:1: no topology lists hosts; expected a tree or blocks"),
    ("- topology: a\n  tree: [\n", r"x:3: not well-formed YAML"),
    ("switches: {s: {nodes: ['n[1']}}\n", r"x:1: switches.s.nodes: 'n\[1' is not a list of hosts"),
    ("switches:\n  s:\n    nodes: n1\n", r"x:3: switches.s.nodes: expected a list of hosts"),
    ("switches:\n- switches: [a]\n", r"x:2: switches\[0\]: expected name: NAME"),
    ("switches: 3\n", r"x:1: switches: expected a mapping or a list"),
    ('{"instances": [\n{"id": 3, "network_layers": ["a"]}]}', r"x:2: an instance needs an id and network_layers"),
    ('{"switches": {"a": {"nodes": ["n1"]}\n', r"x:2: not well-formed"),
    ("switches: {}\n", r"x:1: no hosts; expected nodes"),
    (MATRIX.replace("GPU1\tNV4", "GPU1"), r"x:3: expected 2 cells of X, NV#, PIX, PXB, PHB, NODE or SYS"),
    (MATRIX.replace("NV4\n", "FOO\n"), r"x:2: expected 2 cells of X, NV#"),
    ("\tGPU0\tGPU1\nGPU0\t X \tNV4\n", r"x:1: 2 GPUs in the header, 1 rows below it"),
    ("GPU 0: A (UUID: 1)\nGPU 1: B (UUID: 2)\n" + MATRIX, r"x: GPUs of several kinds in one node \(A, B\)"),
    ("GPU 0: A (UUID: 1)\n" + MATRIX, r"x:2: 2 GPUs in the matrix, but 1 listed by nvidia-smi -L"),
    ('<system version="1">\n<cpu></system>', r"x:2: not well-formed XML: mismatched tag"),
    ('<!DOCTYPE a [<!ENTITY b "b">]>\n<system version="1"/>', r"x:1: DOCTYPE is not allowed; NCCL does not write one"),
    ('<system version="1">\n</system>', r"x:1: the file describes no GPU and no NIC"),
    ('<system version="1">\n<pci class="0x0207"><nic><net speed="fast"/></nic></pci></system>', r"x:2: speed='fast' of <net>"),
    (
        '<system version="1"><pci vendor="a" device="b"><gpu/></pci><pci vendor="a" device="c"><gpu/></pci></system>',
        r"x: GPUs of several kinds in one node \(a:b, a:c\)",
    ),
    ("#  Rank  0 Pid 1 on h device  0 [0x00] A\n", r"x: lists 1 ranks, but a link joins two or more"),
    ('{"nccl_version": 1, "results": []}\n', r"x:1: is not a report of nccl-tests -J \('config'\); config.devices with"),
    ('{"nccl_version": 1,\n', r"x:2: not well-formed JSON"),
    (SWITCH + "[1]\tH-2\n", r'x:2: expected a port such as \[1\] "H-0002c903"\[1\]'),
    (SWITCH + '[1]\t"H-2"[1](2) \t# "Mellanox Technologies Aggregation Node" lid 0 4xNDR\n', r"x:1: no switch port is"),
    (nodes('{"kind": "Node"}'), r"x:2: items\[0\].metadata: expected name: NAME"),
    (nodes("{" + NODE % "A" + "}", "{" + NODE % "A" + "}"), r"x: node 'n' is listed twice"),
    (nodes("{" + NODE % "NVIDIA-A10G-SHARED" + "}"), r"x:2: NVIDIA-A10G-SHARED is part of a device"),
    (nodes("{" + (NODE % "A").replace('"8"', '"many"') + "}"), r"x:2: 'many' is not a number of devices"),
    (nodes('{"kind": "Node", "metadata": {"name": "n"}}'), r"x: none of 1 nodes has devices"),
    (nodes("{" + NODE % "A" + "}")[:-4], r"x:\d: not well-formed JSON"),
    ("CA 'mlx5_0'\n", r"x:1: adapter 'mlx5_0' has no port; expected a line 'Port 1:' below it"),
    (PORT % "Active" + "Rate: fast\nLink layer: Ethernet\n", r"x:1: Rate 'fast' of 'mlx5_0' is not a number of Gbit/s"),
    (PORT % "Active", r"x:1: adapter 'mlx5_0' has no line 'Rate:'; give the whole output of ibstat"),
    (PORT % "Down" + "Rate: 40\nLink layer: Ethernet\n", r"x:1: no port is Active; give ibstat of a node whose fabric is up"),
    ("/sys/class/infiniband/a/ports/1/rate:many\n", r"x:1: rate 'many' is not a number of Gbit/s"),
    ("name, memory.total [MiB]\nA, B, C\n", r"x:2: expected 2 values \(name, memory.total\), found 3"),
    ("name, memory.total [MiB]\n", r"x:1: no GPU below the header"),
    ("name, memory.total [MiB]\nA, 1 MiB\nB, 1 MiB\n", r"x: GPUs of several kinds in one node \(A, B\)"),
    ("GPU[0] : Card series: A\nGPU[1] : Card series: B\n", r"x: GPUs of several kinds in one node \(A, B\)"),
    ("00:00.0 Host bridge [0600]: Intel [8086:09a2]\n", r"x:1: lists no GPU of NVIDIA or AMD"),
    (GPU % "2330" + GPU % "20b2", r"x: GPUs of several kinds in one node \(10de:2330, 10de:20b2\)"),
    ("NODELIST GRES\nn1\n", r"x:2: expected 2 columns \(NODELIST GRES\), found 1"),
    ("NODELIST GRES\nn[1 (null)\n", r"x:2: 'n\[1' is not a list of hosts"),
    ("NODELIST GRES\n", r"x:1: no host below the header"),
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
    with pytest.raises(HolmesError, match=r"^x:2: DOCTYPE is not allowed; NCCL does not write one$"):
        importers.recognised(text, "x").read(text, "x")


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*-*")), ids=lambda path: path.name)
def test_a_sample_that_is_cut_short_is_read_or_reported_in_one_line(path):
    """Wherever a file ends, no traceback comes of it."""
    text = path.read_text(encoding="utf-8")
    for cut in range(0, len(text), max(len(text) // 60, 1)):
        try:
            importers.recognised(text[:cut], "x").read(text[:cut], "x")
        except HolmesError as error:
            assert str(error).startswith("x:")
            assert "\n" not in str(error)
