"""The text of a topology of two clusters, facts of a device, a link and a model written in place, and how tests read them."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim.errors import TopologyError
from sim.formats.topology import load
from sim.hardware.cluster import Fleet

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
    """The topology with the first occurrence of each text replaced."""
    text = TOPOLOGY
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    return text


def faults(folder: Path, text: str) -> list[str]:
    """The lines of the error that reading a file with this text raises, without the folder."""
    file = folder / "topo.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(TopologyError) as caught:
        load(file)
    return str(caught.value).replace(f"{folder}/", "").splitlines()


def read(folder: Path, text: str) -> Fleet:
    """The fleet of a topology file with this text."""
    (folder / "topo.yaml").write_text(text, encoding="utf-8")
    return load(folder / "topo.yaml").fleet


NICS = TOPOLOGY[TOPOLOGY.index("      nics:") : TOPOLOGY.index("    fabric:")]
