"""Random small fleets for models whose layers differ, with what `benchmarks.certificates.fleets` rarely draws.

Two or three clusters of one to three nodes with one to three devices, on slow Ethernet and on RDMA that only some clusters have
or share; some fabrics are oversubscribed. Models have shared experts, layers that predict further tokens, tied embeddings, and
memory that hardly suffices; stacks overlap communication with compute."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from benchmarks.certificates.fleets import FORMAT, INSIDE, STATE
from holmes_sim.targets import aimed
from planner.request import Request, Wishes
from sim.formats import catalog
from sim.formats.documents import parse
from sim.formats.topology import from_document

DEVICES = 9
"""Maximum number of devices of a fleet."""
COUNTS = (1, 1, 2, 2, 3)
ETHERNET = (1, 10, 25)
RDMA = (50, 100, 400)
"""Devices of a node, and rates of NICs in Gbit/s, as often as they are drawn."""
HIDDEN = (512, 1024, 2048, 3072, 4096, 6144, 8192)
BATCHES = (4, 6, 7, 8, 9, 10, 12)
FACTS: tuple[dict[str, Any], ...] = (
    {}, {"tp_overlap": True}, {"tp_backward_overlap": True}, {"overlap_expert_communication": True},
    {"overlap_shared_experts": True}, {"all_reduces": True}, {"fitted": {"launch_per_rank": "1 ms", "network_delay": "0.2 ms"}},
)  # fmt: skip
PINS: tuple[dict[str, Any], ...] = (
    {}, {"zero_stage": 2}, {"zero_stage": 3}, {"zero_stage": 0}, {"schedule": "zb-h1"}, {"schedule": "zb-h2"},
    {"schedule": "zb-latency"}, {"schedule": "1f1b-deepspeed"}, {"schedule": "gpipe"}, {"cp": 2}, {"ep": 2},
    {"schedule": "interleaved", "vpp": 2}, {"schedule": "interleaved", "vpp": 3}, {"schedule": "interleaved", "vpp": 4},
    {"schedule": "interleaved"}, {"tp": 2}, {"schedule": "1f1b"},
)  # fmt: skip
"""Facts of stacks and pins of requests."""
NARROWER: tuple[dict[str, Any], ...] = (
    {"recompute": "none"}, {"microbatch_size": 1}, {"zero_stage": 1}, {"schedule": "1f1b"}, {"tp": 1}, {"dp": 1},
)  # fmt: skip
"""Pins of requests whose space is too large, from the last one on."""
TARGETS = ("none", "none", "none", "deepspeed", "torchtitan", "megatron")


def draw(seed: int, devices: int = DEVICES) -> tuple[Request, list[dict[str, Any]]]:
    """The request of a seed without a time limit, and pins that may make its space smaller, in random order."""
    rng = random.Random(f"unlike fleets {seed}")
    clusters = _clusters(rng, devices)
    links = [link for pair in itertools.combinations(clusters, 2) for link in _links(rng, pair, clusters)]
    facts, pins = rng.choice(FACTS), dict(rng.choice(PINS))
    model = _model(rng, clusters)
    if not model.get("experts"):
        pins.pop("ep", None)
    batch, tokens = rng.choice(BATCHES), rng.choice((512, 1024, 4096))
    document = {
        "format": FORMAT, "name": f"unlike-{seed}", "clusters": clusters, "links": links,
        "workload": {"model": model, "global_batch_size": batch, "seq_len": tokens, "precision": "fp16"},
    }  # fmt: skip
    if facts:
        document["stack"] = {"name": "drawn", "fitted": {}} | facts
    topology = from_document(parse(f"unlike-{seed}", json.dumps(document)))
    assert topology.workload is not None
    asked, narrower = rng.choice(TARGETS), rng.sample(NARROWER, len(NARROWER))
    request = Request(topology, topology.workload, Wishes(**pins), math.inf)
    return request if "schedule" in pins else aimed(request, (asked,)), narrower


def narrowed(seed: int, is_small: Callable[[Request], bool]) -> Request:
    """The request of a seed with so many pins that its space is small, if enough dimensions can be pinned."""
    request, pins = draw(seed)
    while pins and not is_small(request):
        given = {key: value for key, value in asdict(request.wishes).items() if value is not None}
        request = replace(request, wishes=Wishes(**pins.pop() | given))
    return request


def _clusters(rng: random.Random, devices: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    names, left, kind = "abc"[: rng.choice((2, 2, 3))], devices, rng.choice(("infiniband", "roce"))
    for index, name in enumerate(names):
        spare = left - (len(names) - index - 1)
        count = rng.choice([one for one in COUNTS if one <= spare])
        nodes = rng.randint(1, min(3, spare // count))
        left -= nodes * count
        device = rng.choice(list(INSIDE))
        inside = rng.choice([one for one in INSIDE[device] if "host" not in one])
        nics = [{"type": "ethernet", "bandwidth": f"{rng.choice(ETHERNET)} Gbit/s", "count": 1}]
        if rng.random() < 0.5:
            nics.append({"type": kind, "bandwidth": f"{rng.choice(RDMA)} Gbit/s", "count": rng.choice((1, count))})
        node = {"devices": {"type": device, "count": count}, "intra_node": inside, "nics": nics}
        found[name] = {"nodes": nodes, "node": node}
        if nodes > 2 and rng.random() < 0.25:
            found[name]["fabric"] = {"nodes_per_leaf": 2, "oversubscription": rng.choice((2, 4))}
    return found


def _links(rng: random.Random, pair: tuple[str, str], clusters: dict[str, Any]) -> list[dict[str, Any]]:
    kinds = [{nic["type"] for nic in clusters[name]["node"]["nics"]} for name in pair]
    latency = rng.choice(("10 us", "1 ms"))
    rates = {"ethernet": ETHERNET} | {kind: RDMA for kind in sorted(kinds[0] & kinds[1] - {"ethernet"}) if rng.random() < 0.7}
    return [
        {"between": list(pair), "type": kind, "bandwidth": f"{rng.choice(some)} Gbit/s", "latency": latency}
        for kind, some in rates.items()
    ]


def _model(rng: random.Random, clusters: dict[str, Any]) -> dict[str, Any]:
    """A model of several kinds of layers that takes a fifth to all of the memory of the fleet."""
    layers, share = rng.choice((4, 5, 6, 6, 7, 8)), rng.uniform(0.2, 1.0)
    nodes = [(cluster["nodes"], cluster["node"]["devices"]) for cluster in clusters.values()]
    memory = sum(float(number * one["count"]) * catalog.device(one["type"]).memory for number, one in nodes)
    fitting = [one for one in HIDDEN if STATE * (layers * 12 * one**2 + 64_000 * one) < share * memory]
    hidden = max(fitting or HIDDEN[:1]) if rng.random() < 0.7 else rng.choice(HIDDEN[:4])
    ffn = hidden * rng.choice((1, 2))
    experts = {"experts": rng.choice((2, 4)), "experts_per_token": rng.choice((1, 2))}
    if rng.random() < 0.6:
        experts["shared_ffn_hidden"] = ffn // rng.choice((1, 4))
    dense = experts | {"dense_ffn_hidden": ffn * rng.choice((1, 2, 8))}
    windows = {"sliding_window": 128, "sliding_window_every": 2}
    kind: dict[str, Any] = rng.choice((
        dense | {"dense_layers": 1}, dense | {"dense_layers": 2, "mtp_layers": 1}, dense | {"moe_layer_step": 2},
        experts | windows, windows, {"sliding_window": 128, "full_attention_every": 3}, experts | {"mtp_layers": 1},
        {"mtp_layers": 1}, dense | {"dense_layers": 1, "mtp_layers": 2}, dense | {"moe_layer_step": 2, "mtp_layers": 1},
    ))  # fmt: skip
    return kind | {
        "name": "drawn", "layers": layers, "hidden": hidden, "heads": hidden // 128, "kv_heads": 4, "ffn_hidden": ffn,
        "vocab": rng.choice((32_000, 128_256)), "mlp": rng.choice(("gelu", "swiglu")), "tied_embeddings": rng.random() < 0.5,
    }  # fmt: skip
