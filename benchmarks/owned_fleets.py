"""Random fleets of the sizes that users own, with a model of the catalogue: one request for each seed.

A fleet has one to three clusters of one to eight nodes with up to eight devices, which may be of one type. NICs are those that
such nodes usually have; every node has Ethernet as well, over which clusters are joined. Some fleets are desks of gaming cards,
some have slow links between clusters; some workloads train adapters, experts or long sequences; some plans are for one
framework. `draw_unlike` draws other fleets, with a model whose layers differ: dense layers before those with experts, attention
windows in some layers, or a layer that predicts a further token."""

from __future__ import annotations

import json
import random
from itertools import combinations
from typing import Any

from holmes_sim.targets import ANY, aimed
from planner.request import Request, Wishes
from planner.search.fitting import fitting
from sim.formats.documents import parse
from sim.formats.topology import from_document

TIME_LIMIT = 240.0
"""Time limit of the planner in seconds: more than it needs, so that its results do not depend on the machine."""
NODES: dict[str, tuple[int, str, tuple[tuple[str, int, int], ...]]] = {
    "h100-sxm5-80gb": (8, "nvlink4", (("infiniband", 400, 8), ("roce", 400, 8), ("roce", 200, 4))),
    "h200-sxm-141gb": (8, "nvlink4", (("infiniband", 400, 8),)),
    "a100-sxm4-80gb": (8, "nvlink3", (("infiniband", 200, 8), ("infiniband", 200, 4), ("roce", 100, 2), ("ethernet", 100, 1))),
    "a100-sxm4-40gb": (8, "nvlink3", (("infiniband", 200, 8), ("roce", 100, 4), ("ethernet", 25, 1))),
    "a100-pcie-40gb": (4, "pcie4", (("roce", 100, 1), ("ethernet", 25, 1))),
    "v100-sxm2-32gb": (8, "nvlink2", (("infiniband", 100, 4), ("ethernet", 25, 1), ("ethernet", 10, 1))),
    "v100-sxm2-16gb": (4, "nvlink2", (("infiniband", 100, 1), ("ethernet", 10, 1))),
    "l40s": (8, "pcie4", (("roce", 200, 2), ("ethernet", 100, 1))),
    "rtx-4090": (4, "pcie4", (("ethernet", 10, 1), ("ethernet", 25, 1))),
    "rtx-3090": (2, "pcie4", (("ethernet", 10, 1),)),
    "mi300x": (8, "infinity-fabric-4", (("roce", 400, 8),)),
    "mi210": (4, "infinity-fabric-3", (("infiniband", 200, 2),)),
}
"""Device -> devices of a node, the link between them, and its possible NICs (type, rate in Gbit/s, number)."""
COUNTS = (1, 2, 2, 3, 4, 4, 6, 8)
CLUSTERS = (1, 2, 2, 2, 3, 3)
"""Numbers of nodes of a cluster and of clusters of a fleet, as often as they are drawn."""
TRUNKS = (10, 25, 100, 100, 400)
LATENCIES = ("20 us", "20 us", "20 us", "1 ms", "10 ms")
FAR_TRUNKS, FAR_LATENCIES = (1, 2, 5, 10), ("1 ms", "10 ms", "30 ms")
"""The same of fleets with slow links."""
DESKS: dict[str, tuple[int, str, tuple[tuple[str, int, int], ...]]] = {
    "rtx-3080-ti": (1, "pcie4", (("ethernet", 1, 1), ("ethernet", 10, 1))),
    "rtx-3090": (2, "pcie4", (("ethernet", 1, 1), ("ethernet", 10, 1))),
    "rtx-4090": (2, "pcie4", (("ethernet", 1, 1), ("ethernet", 10, 1))),
    "l40s": (4, "pcie4", (("ethernet", 10, 1), ("ethernet", 25, 1))),
}
"""As `NODES`, of workstations."""
MODELS = (
    "gpt-3.6b", "gpt-7.5b", "gpt-18b", "gpt-39b", "llama-2-7b", "llama-3-8b", "llama-2-13b", "llama-3-70b", "mixtral-8x7b",
)  # fmt: skip
SMALL_MODELS = ("gpt-1.7b", "gpt-3.6b", "llama-3-8b")
DENSE_MODELS = ("llama-2-7b", "llama-3-8b", "llama-2-13b", "llama-3-70b")
MIXTURES = ("mixtral-8x7b", "qwen3-30b-a3b")
UNLIKE_MODELS = (
    "deepseek-v2-lite", "deepseek-v2-lite", "gpt-oss-20b", "gpt-oss-20b", "gemma-3-4b", "gemma-3-12b", "gemma-3-27b",
    "gemma-2-9b", "glm-4.5-air",
)  # fmt: skip
"""Models of desks, of adapters and long sequences, of experts, and those whose layers differ."""
BATCHES = (64, 96, 128, 256, 512, 768, 1024)
SMALL_BATCHES = (16, 32, 48, 64, 128)
"""Batches of desks and of long sequences."""
SEQUENCES = (1024, 2048, 2048, 4096, 8192)
LONG = 32_768
"""Tokens of long sequences."""
POSITIONS = 2048
"""Learned positions of the GPT models of the catalogue: their sequences are not longer."""


UNLIKE_KINDS = ("unlike", "unlike", "unlike, far")
"""Kinds of requests for a model whose layers differ, as often as they are drawn."""
KINDS = ("usual", "usual", "usual", "desks", "desks", "far", "adapters", "experts", "long")
TARGETS = (ANY, ANY, ANY, ANY, ANY, "megatron", "torchtitan", "deepspeed")
"""Kinds of requests, and what they are for, as often as they are drawn."""


def draw(seed: int) -> Request:
    """The request of a seed, for plans that some training framework, or a certain one, can run: the first of those drawn of
    which some plan fits."""
    return _first_that_fits(f"owned-{seed}", random.Random(f"owned {seed}"), KINDS)


def draw_unlike(seed: int) -> Request:
    """As `draw`, with a model whose layers differ."""
    return _first_that_fits(f"unlike-{seed}", random.Random(f"unlike {seed}"), UNLIKE_KINDS)


def _first_that_fits(name: str, rng: random.Random, kinds: tuple[str, ...]) -> Request:
    return next(one for one in iter(lambda: _drawn(rng, name, kinds), None) if fitting(one) is not None)


def _drawn(rng: random.Random, name: str, kinds: tuple[str, ...]) -> Request:
    """A request of one of some kinds, of which perhaps no plan fits."""
    kind, target, number = rng.choice(kinds), rng.choice(TARGETS), rng.choice(CLUSTERS)
    nodes = DESKS if kind == "desks" else NODES
    types = rng.sample(list(nodes), number) if rng.random() < 0.8 else [rng.choice(list(nodes))] * number
    clusters = {f"c{index}": {"nodes": rng.choice(COUNTS), "node": _node(rng, one, nodes)} for index, one in enumerate(types)}
    slow = kind in ("desks", "far", "unlike, far")
    trunks, latencies = (FAR_TRUNKS, FAR_LATENCIES) if slow else (TRUNKS, LATENCIES)
    links = [
        {
            "between": list(pair), "type": "ethernet", "bandwidth": f"{rng.choice(trunks)} Gbit/s",
            "latency": rng.choice(latencies),
        }
        for pair in combinations(clusters, 2)
    ]  # fmt: skip
    precision = "fp16" if any(one.startswith("v100") for one in types) else "bf16"
    document = {
        "format": "holmes-sim/topology/1", "name": name, "clusters": clusters, "links": links,
        "workload": _workload(rng, kind) | {"precision": precision},
    }  # fmt: skip
    topology = from_document(parse(name, json.dumps(document)))
    assert topology.workload is not None
    return aimed(Request(topology, topology.workload, Wishes(), TIME_LIMIT), (target,))


def _workload(rng: random.Random, kind: str) -> dict[str, Any]:
    """A workload of a kind of `KINDS`, without its precision."""
    of_kind = {"desks": SMALL_MODELS, "adapters": DENSE_MODELS, "long": DENSE_MODELS, "experts": MIXTURES}
    of_kind |= dict.fromkeys(UNLIKE_KINDS, UNLIKE_MODELS)
    model, tokens = rng.choice(of_kind.get(kind, MODELS)), LONG if kind == "long" else rng.choice(SEQUENCES)
    found: dict[str, Any] = {
        "model": model, "global_batch_size": rng.choice(SMALL_BATCHES if kind in ("desks", "long") else BATCHES),
        "seq_len": min(tokens, POSITIONS) if model.startswith("gpt") else tokens,
    }  # fmt: skip
    if kind == "adapters" or (kind == "desks" and rng.random() < 0.5):
        found["adapter"] = {"r": 16} | ({"base_precision": "nf4"} if rng.random() < 0.5 else {})
    return found


def _node(rng: random.Random, name: str, nodes: dict[str, tuple[int, str, tuple[tuple[str, int, int], ...]]]) -> dict[str, Any]:
    """A node of a device type, with Ethernet beside other NICs."""
    count, inside, nics = nodes[name]
    kind, rate, number = rng.choice(nics)
    every = [{"type": kind, "bandwidth": f"{rate} Gbit/s", "count": number}]
    if kind != "ethernet":
        every.append({"type": "ethernet", "bandwidth": f"{rng.choice((10, 25, 100))} Gbit/s", "count": 1})
    return {"devices": {"type": name, "count": count}, "intra_node": inside, "nics": every}
