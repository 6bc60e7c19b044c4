"""Plans of islands for tests of launches: two sites of A100, an island on each, joined by a trunk."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sim import __version__
from sim.formats import documents, topology
from sim.hardware.cluster import Device
from sim.plan.groups import groups_of
from sim.plan.islands import IslandsPlan
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import MadeBy, Plan, Stage
from sim.sync import Sync

TOPOLOGY = """\
format: holmes-sim/topology/1
name: two-sites
source: written for tests of launches of islands
clusters:
  east: &site
    nodes: 2
    node:
      devices: {{type: a100-sxm4-80gb, count: 8}}
      intra_node: nvlink3
      nics: [{{type: infiniband, bandwidth: 200 Gbit/s, count: 2}}, {{type: ethernet, bandwidth: 25 Gbit/s}}]
  west: *site
links: [{{between: [east, west], type: ethernet, bandwidth: 10 Gbit/s, latency: 5 ms}}]
workload: {{model: {model}, global_batch_size: 64, seq_len: 2048, precision: bf16}}
"""
TEN = (
    "{name: intellect-1, layers: 42, hidden: 4096, heads: 32, kv_heads: 8, ffn_hidden: 14336, vocab: 128256, mlp: swiglu, "
    "tied_embeddings: false, rope_theta: 500000}"
)
"""The model of INTELLECT-1: 10B of prime (arXiv 2412.01152)."""
DILOCO = Sync("diloco", 100)


def island(site: str, nodes: int = 1, model: str = "llama-3-8b", batch: int = 8, **config: Any) -> Plan:
    """An island on the first nodes of a site: ZeRO 3 over all devices, a microbatch of one sequence, unless given otherwise."""
    where = topology.from_document(documents.parse("two-sites.yaml", TOPOLOGY.format(model=model)))
    degrees = {"dp": 8 * nodes, "zero_stage": 3} | config
    dp, size = degrees["dp"], degrees.get("microbatch_size", 1)
    usual = {"num_microbatches": (batch // dp // size,) * dp, "recompute": "full"}
    found = ParallelConfig(**usual | degrees)
    devices = tuple(Device(site, node, index) for node in range(nodes) for index in range(8))[: found.world_size]
    assert where.workload is not None
    layers = where.workload.model.layers // found.num_stages
    stages = tuple(Stage(index * layers, (index + 1) * layers) for index in range(found.num_stages))
    workload = replace(where.workload, global_batch_size=batch)
    where = replace(where, workload=workload)
    return Plan(where, workload, found, stages, devices, groups_of(where.fleet, found, devices), MadeBy("by hand", __version__))


def islands(sync: Sync = DILOCO, west: dict[str, Any] | None = None, **facts: Any) -> IslandsPlan:
    """Two alike islands; `west` says in what the second differs."""
    return IslandsPlan(sync, (island("east", **facts), island("west", **facts | (west or {}))), MadeBy("by hand", __version__))
