"""Drawn requests of five or six cities: clusters of one node with unlike devices of the catalogue, joined by slow links."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

from benchmarks.certificates.fleets import FORMAT, TIME_LIMIT
from planner.request import Request, Wishes
from sim.formats.documents import parse
from sim.formats.topology import from_document

DEVICES = ("a100-sxm4-80gb", "h100-pcie-80gb", "l40s", "rtx-3090", "rtx-4090", "v100-sxm2-32gb")
NICS = (1, 10, 10, 25)
TRUNKS = (0.2, 0.5, 1, 2, 5, 10)
"""Rates in Gbit/s."""
LATENCIES = (2, 10, 30, 80)
"""Milliseconds between two cities."""
PINS: tuple[dict[str, Any], ...] = (
    {"schedule": "1f1b", "dp": 1}, {"schedule": "1f1b", "dp": 2}, {"schedule": "interleaved", "vpp": 2, "dp": 1},
    {"schedule": "zb-h1", "dp": 1},
)  # fmt: skip
LAYERS = 6
HIDDEN = (4096, 6144, 8192, 8192, 10_240)
"""Of the largest, few cities have the memory for all layers."""


def of_cities(request: Request, seed: int) -> Request:
    """The request of a seed, which has nothing of the other request but its software stack."""
    rng = random.Random(f"cities {seed}")
    names = "abcdef"[: rng.choice([5, 5, 6])]
    pins = rng.choice(PINS)
    clusters = {name: {"nodes": 1, "node": _node(rng, 2 if pins["dp"] == 2 else rng.choice([1, 1, 1, 2]))} for name in names}
    document = {
        "format": FORMAT,
        "name": f"cities-{seed}",
        "clusters": clusters,
        "links": [_trunk(rng, pair) for pair in itertools.combinations(names, 2)],
        "workload": {
            "model": {
                "name": "drawn", "layers": LAYERS, "hidden": (hidden := rng.choice(HIDDEN)), "heads": 32, "kv_heads": 32,
                "ffn_hidden": 4 * hidden, "vocab": 32_000, "mlp": "gelu", "tied_embeddings": rng.random() < 0.5,
            },
            "global_batch_size": rng.choice([4, 8, 16]), "seq_len": rng.choice([512, 2048]), "precision": "fp16",
        },
    }  # fmt: skip
    topology = from_document(parse(f"cities-{seed}", json.dumps(document)))
    assert topology.workload is not None
    return Request(topology, topology.workload, Wishes(tp=1, microbatch_size=1, recompute="none", **pins), TIME_LIMIT)


def _node(rng: random.Random, devices: int) -> dict[str, Any]:
    nic = {"type": "ethernet", "bandwidth": f"{rng.choice(NICS)} Gbit/s", "count": 1}
    return {"devices": {"type": rng.choice(DEVICES), "count": devices}, "intra_node": "pcie4", "nics": [nic]}


def _trunk(rng: random.Random, pair: tuple[str, str]) -> dict[str, Any]:
    rate, latency = f"{rng.choice(TRUNKS)} Gbit/s", f"{rng.choice(LATENCIES)} ms"
    return {"between": list(pair), "type": "ethernet", "bandwidth": rate, "latency": latency}
