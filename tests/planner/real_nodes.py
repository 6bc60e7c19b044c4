"""Requests on nodes of catalogue devices."""

from __future__ import annotations

import json

from planner.request import Request, Wishes
from sim.formats.documents import parse
from sim.formats.topology import from_document
from tests.planner.builders import NO_LIMIT

EIGHT_H100 = {
    "devices": {"type": "h100-sxm5-80gb", "count": 8}, "intra_node": "nvlink4",
    "nics": [{"type": "infiniband", "bandwidth": "400 Gbit/s", "count": 8}],
}  # fmt: skip
NO_PEERS = {
    "bandwidth": "6 GB/s", "latency": "10 us", "overhead": "10 us", "interference": 0.02,
    "efficiency": dict.fromkeys(("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"), 0.8),
}  # fmt: skip
FOUR_PCIE = {
    "devices": {"type": "a100-pcie-40gb", "count": 4}, "intra_node": NO_PEERS,
    "nics": [{"type": "infiniband", "bandwidth": "400 Gbit/s", "count": 4}],
}  # fmt: skip


def on_real_nodes(node: dict[str, object], nodes: int, model: object, batch: int, seq_len: int, **wishes: object) -> Request:
    """A request on one cluster, `a`."""
    workload = {"model": model, "global_batch_size": batch, "seq_len": seq_len, "precision": "bf16"}
    document = {
        "format": "holmes-sim/topology/1",
        "name": "one",
        "clusters": {"a": {"nodes": nodes, "node": node}},
        "workload": workload,
    }
    topology = from_document(parse("one", json.dumps(document)))
    assert topology.workload is not None
    return Request(topology, topology.workload, Wishes(**wishes), NO_LIMIT)


def tied_on_pcie() -> Request:
    """Gemma-2-9B's shape, with a tied embedding of 256,000 words, on two servers whose NICs are faster than their inside."""
    model = {
        "layers": 42, "hidden": 3584, "heads": 16, "kv_heads": 8, "head_dim": 256, "ffn_hidden": 14336, "vocab": 256_000,
        "mlp": "swiglu", "tied_embeddings": True,
    }  # fmt: skip
    return on_real_nodes(FOUR_PCIE, 2, model, 32, 2048)
