"""Plans with attention and experts on two sets of ranks, for tests of files, commands and runs."""

from __future__ import annotations

from functools import cache

from sim.disaggregation.plan import DisaggregatedPlan, predict
from sim.disaggregation.stage import DisaggregatedStage
from sim.formats import documents, topology
from sim.hardware.cluster import Device
from sim.hardware.topology import Topology
from sim.plan.plan import MadeBy

FLEET = """
format: holmes-sim/topology/1
name: two-types
source: "chosen: two clusters whose devices differ"
clusters:
  new:
    nodes: 2
    node: {{devices: {{type: a40, count: 1}}, intra_node: pcie4, nics: [{{type: roce, bandwidth: 100 Gbit/s, count: 1}}]}}
  old:
    nodes: 2
    node: {{devices: {{type: v100-sxm2-32gb, count: 1}}, intra_node: pcie3,
      nics: [{{type: roce, bandwidth: 100 Gbit/s, count: 1}}]}}
links: [{{between: [new, old], type: roce, bandwidth: 200 Gbit/s, latency: 1 us}}]
workload: {{model: {model}, global_batch_size: {batch}, seq_len: 16, precision: fp32}}
"""
MODEL = (
    "{name: small, layers: 2, hidden: 32, heads: 4, kv_heads: 2, ffn_hidden: 24, vocab: 64, mlp: swiglu, "
    "tied_embeddings: false, experts: 8, experts_per_token: 2}"
)
NEW = tuple(Device("new", node, 0) for node in range(2))
OLD = tuple(Device("old", node, 0) for node in range(2))


@cache
def where(batch: int = 8, model: str = MODEL) -> Topology:
    """Two nodes of one A40 and two of one V100, and a small model."""
    return topology.from_document(documents.parse("two-types.yaml", FLEET.format(batch=batch, model=model)))


def stage(attention: int = 2, experts: int = 1, batch: int = 8, model: str = MODEL, **options: object) -> DisaggregatedStage:
    """Attention on so many A40, experts on so many V100."""
    found = where(batch, model)
    assert found.workload is not None
    return DisaggregatedStage(found, found.workload, NEW[:attention], OLD[:experts], **options)  # type: ignore[arg-type]


@cache
def plan() -> DisaggregatedPlan:
    """Two attention ranks, which keep four experts of the second layer, and one expert rank; with its prediction."""
    found = stage(rounds=2, kept=(0, 4))
    return DisaggregatedPlan(found, MadeBy("by hand", "1"), predict(found))
