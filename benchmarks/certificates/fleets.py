"""Random small fleets of catalogue devices, with a workload and pinned dimensions: one request for each seed.

A fleet has one to three clusters of one to three nodes with one to four devices, at most ten devices in total. Links inside a
node may be slower or faster than its NICs. Models have two to six layers with one or several gradient buckets. Other fleets
are servers with PCIe cards only, with models of up to twelve layers, and so with long pipelines. Most fleets have a software
stack of their own: of all fleets, a third draw its numbers, 40 % all-reduce gradients under ZeRO 1, and 40 % launch kernels of
tensor-parallel pipelines later. In some a cluster has NVLink domains of several nodes.
"""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import asdict, replace
from typing import Any

from benchmarks.certificates.space import pipelines, shapes
from planner.request import Request, Wishes
from sim.formats import catalog
from sim.formats.documents import parse
from sim.formats.topology import from_document
from sim.hardware.stack import SHARES
from sim.plan.parallel_config import BLOCK

LARGEST = 20_000
"""Maximum number of pipelines of all shapes of a request: dimensions are pinned until there are at most that many."""
DEVICES = 10
"""Maximum number of devices of a fleet."""
TIME_LIMIT = 1_200.0
"""Time limit of the planner in seconds: more than it needs on a busy machine, so that its results do not depend on that."""

NO_PEER_TO_PEER = "6 GB/s through the host"
INSIDE = {
    "a100-pcie-40gb": ("pcie4", NO_PEER_TO_PEER, "nvlink3-bridge"),
    "a100-sxm4-80gb": ("nvlink3",),
    "a100-sxm4-40gb": ("nvlink3",),
    "h100-sxm5-80gb": ("nvlink4",),
    "h100-pcie-80gb": ("pcie5", "nvlink4-bridge"),
    "l40s": ("pcie4", NO_PEER_TO_PEER),
    "v100-sxm2-16gb": ("nvlink2",),
    "rtx-3090": ("pcie4", "pcie3", NO_PEER_TO_PEER),
    "rtx-4090": ("pcie4", NO_PEER_TO_PEER),
    "t4": ("pcie3",),
    "mi210": ("infinity-fabric-3", "pcie4"),
}
"""Device -> possible links inside a node."""
MESHES = ("nvlink2", "nvlink3-bridge", "nvlink4-bridge", "pcie3", "pcie4", "pcie5", "infinity-fabric-3")
"""Links of `INSIDE` without a switch between all devices."""
PCIE_CARDS = ("a100-pcie-40gb", "l40s", "rtx-3090", "rtx-4090")
ETHERNET = (10, 25, 25, 100)
RDMA = (100, 200, 400)
TRUNKS = (1, 10, 25, 100, 100)
"""Rates in Gbit/s."""
HIDDEN = (512, 1024, 1536, 2048, 3072, 4096)
LARGE = (5120, 6144, 8192, 12_288)
STATE = 18
"""Bytes of weights, gradients and optimizer state per parameter."""
VOCABULARIES = (32_000, 51_200, 128_256, 256_000, 256_000)
BATCHES = (4, 6, 8, 8, 9, 10, 12, 12, 15, 16, 16, 16, 18, 20, 24, 24)
SEQUENCES = (512, 1024, 2048, 2048, 4096, 4096)
PINS: tuple[dict[str, Any], ...] = (
    {"tp": 1}, {"tp": 2}, {"pp": 2}, {"pp": 3}, {"dp": 1}, {"schedule": "1f1b"}, {"schedule": "zb-h1"}, {"recompute": "none"},
    {"recompute": "full"}, {"zero_stage": 1}, {"zero_stage": 3}, {"microbatch_size": 1}, {"microbatch_size": 2},
)  # fmt: skip
"""Pins. Some requests have one at random; requests with too large a space get more."""
LONG: tuple[dict[str, Any], ...] = (
    {"tp": 1, "dp": 1}, {"tp": 1, "dp": 2}, {"tp": 2, "dp": 1}, {"tp": 1, "microbatch_size": 1},
    {"tp": 1, "dp": 1, "schedule": "1f1b"}, {"tp": 1, "schedule": "interleaved"}, {"tp": 1, "dp": 1, "microbatch_size": 1},
    {"microbatch_size": 1, "schedule": "zb-h1"},
)  # fmt: skip
"""Pins of requests with long pipelines."""
STACK_SHARES = (0.3, 1.5)
NEWEST = "attention_newest"
"""The share that is not drawn but that of other attention, so that each seed has the fleet that it had."""
STACK_TIMES = {"launch": 4.0, "step": 50.0, "network_delay": 0.3}
"""Numbers of drawn software stacks: the range of shares, and the largest milliseconds."""
FORMAT = "holmes-sim/topology/1"


def draw(seed: int, largest: int = LARGEST) -> Request:
    """The request of a seed, with a space of at most `largest` pipelines (if enough dimensions can be pinned)."""
    rng = random.Random(seed)
    document, pinned = _servers(rng) if rng.random() < 0.4 else _various(rng)
    switches = random.Random(f"switches {seed}")
    if switches.random() < 0.15:
        document, pinned = _switched(switches)
    document |= _software(random.Random(f"software {seed}"), random.Random(f"nanotron {seed}"))
    _narrow(random.Random(f"narrow {seed}"), document)
    _wait_for_messages(random.Random(f"messages {seed}"), document)
    _join(random.Random(f"domains {seed}"), document["clusters"])
    _route(random.Random(f"routing {seed}"), document)
    _hang(random.Random(f"sockets {seed}"), document["clusters"])
    topology = from_document(parse(f"seed-{seed}", json.dumps(document | {"name": f"seed-{seed}"})))
    assert topology.workload is not None
    request = Request(topology, topology.workload, Wishes(**pinned), TIME_LIMIT)
    pins = rng.sample(PINS, len(PINS))
    while pins and size(request, largest) > largest:
        request = replace(request, wishes=Wishes(**pins.pop() | _given(request.wishes)))
    return request


def _software(rng: random.Random, nanotron: random.Random) -> dict[str, Any]:
    """A software stack with a few numbers far from the default, for a third of the fleets; else only with facts of nanotron."""
    reduces, late = (nanotron.random() < 0.4 for _ in range(2))
    own: dict[str, Any] = {"name": "drawn", "all_reduces": reduces}
    fitted = {"launch_per_rank": f"{nanotron.uniform(0.1, 3.0):.3g} ms"} if late else {}
    if rng.random() > 1 / 3:
        return {"stack": own | {"fitted": fitted}} if reduces or late else {}
    drawn: dict[str, Any] = {name: round(rng.uniform(*STACK_SHARES), 3) for name in SHARES if name != NEWEST}
    drawn |= {name: f"{rng.uniform(0, most):.3g} ms" for name, most in STACK_TIMES.items()}
    drawn["update_bytes"] = rng.randint(0, 500)
    chosen, moved = rng.sample(sorted(drawn), 3), drawn["update_bytes"]
    facts = {"blocking": rng.random() < 0.2, "tp_overlap": moved % 3 == 0, "fused_accumulation": moved % 2 == 0}
    facts |= {"early_stop": moved % 5 < 2, "newest_products": moved % 4 == 0, "tp_backward_overlap": moved % 3 == 1}
    passes = {"passes": {"heads": 3.3, "norm": 1.3}} if moved % 7 < 2 else {}
    fitted |= {name: drawn[name] for name in chosen} | ({NEWEST: drawn["attention"]} if "attention" in chosen else {})
    return {"stack": own | facts | passes | {"fitted": fitted}}


def _narrow(rng: random.Random, document: dict[str, Any]) -> None:
    """Train in fp8 in half of the fleets with devices that can, with or without gathers of weights in fp8."""
    types = {cluster["node"]["devices"]["type"] for cluster in document["clusters"].values()}
    if rng.random() < 0.5 and any(catalog.device(name).runs("fp8") for name in types):
        document["workload"]["precision"] = "fp8"
        if rng.random() < 0.7:
            document.setdefault("stack", {"name": "drawn", "fitted": {}})["fp8_param_gather"] = True


def _wait_for_messages(rng: random.Random, document: dict[str, Any]) -> None:
    """Let messages hold their receivers, hosts call for messages, or both, in a fifth of the fleets."""
    if rng.random() < 0.2:
        facts = rng.choice([{"held_receivers": True}, {"message_calls": [24, 46, 12, 24]}])
        document.setdefault("stack", {"name": "drawn", "fitted": {}}).update(facts)
        if rng.random() < 0.4:
            document["stack"].update(held_receivers=True, message_calls=[rng.randint(0, 200) for _ in range(4)])


def _join(rng: random.Random, clusters: dict[str, Any]) -> None:
    """Join nodes of some clusters to NVLink domains, where a switch may be between their devices."""
    for cluster in clusters.values():
        nodes, inside = cluster["nodes"], cluster["node"]["intra_node"]
        if nodes > 1 and rng.random() < 0.4 and inside not in MESHES:
            hosts = rng.choice([number for number in range(2, nodes + 1) if nodes % number == 0])
            cluster["nvlink_domain"] = hosts * cluster["node"]["devices"]["count"]


def _route(rng: random.Random, document: dict[str, Any]) -> None:
    """Give leaf switches whose RoCE flows collide to the clusters of a fifth of the fleets."""
    if rng.random() > 0.2:
        return
    for cluster in document["clusters"].values():
        for nic in cluster["node"]["nics"][1:]:
            nic["type"] = "roce"
            nic.pop("sharp", None)
        if cluster["nodes"] > 1 and "nvlink_domain" not in cluster and len(cluster["node"]["nics"]) > 1:
            cluster["fabric"] = {"nodes_per_leaf": rng.choice([1, 2, 2, 3]), "routing": rng.choice([*catalog.routings()])}
    for link in document["links"]:
        link["type"] = "ethernet" if link["type"] == "ethernet" else "roce"


def _hang(rng: random.Random, clusters: dict[str, Any]) -> None:
    """Hang NICs of a quarter of the clusters on one socket."""
    for cluster in clusters.values():
        node = cluster["node"]
        if rng.random() < 0.25 and node["devices"]["count"] > 1 and "nvlink_domain" not in cluster:
            node["socket_link"] = f"{rng.choice([3, 6, 10, 22])} GB/s"
            for nic in rng.sample(node["nics"], rng.randint(1, len(node["nics"]))):
                nic["socket"] = rng.choice([0, 1])


def _switched(rng: random.Random) -> tuple[dict[str, Any], dict[str, Any]]:
    """A document of one cluster of many small nodes whose switches add up gradients, with or without another one; and pins with
    which gradients are all-reduced (ZeRO 0)."""
    clusters: dict[str, Any] = {"a": {"nodes": rng.choice([3, 4, 5, 6]), "node": _node(rng, 1, "h100-sxm5-80gb", rdma=True)}}
    if rng.random() < 0.5:
        clusters["a"] = {"nodes": rng.choice([3, 4]), "node": _node(rng, 2, rng.choice(list(INSIDE)), rdma=True)}
    if rng.random() < 0.3:
        clusters["b"] = {"nodes": 1, "node": _node(rng, 2, "a100-sxm4-80gb", rdma=True)}
    for cluster in clusters.values():
        cluster["node"]["nics"][1] |= {"type": "infiniband", "sharp": rng.random() < 0.8}
    links = _trunks(rng, ("a", "b"), clusters) if len(clusters) > 1 else []
    workload = _workload(rng, _model(rng, rng.choice([2, 3, 4, 6]), rng.choice(HIDDEN[2:])), "fp16")
    document = {"format": FORMAT, "clusters": clusters, "links": links, "workload": workload}
    return document, rng.choice([{}, {"pp": 1}, {"tp": 1}]) | {"zero_stage": 0}


def _various(rng: random.Random) -> tuple[dict[str, Any], dict[str, Any]]:
    """A topology document of a fleet of any nodes with a workload, and the pins."""
    document = _fleet(rng)
    model = _model(rng, rng.choice([2, 3, 4, 4, 5, 6, 6, 6]), _hidden(rng, document))
    document["workload"] = _workload(rng, model, _precision(rng, document))
    return document, rng.choice(PINS) if rng.random() < 0.4 else {}


def _servers(rng: random.Random) -> tuple[dict[str, Any], dict[str, Any]]:
    """A document of one or two clusters of PCIe cards with RDMA, most without peer-to-peer, and more layers; and the pins."""
    clusters: dict[str, Any] = {}
    for name in "ab"[: rng.choice([1, 1, 2])]:
        count = rng.choice([2, 3, 4])
        node = _node(rng, count, rng.choice(PCIE_CARDS), rdma=True)
        if rng.random() < 0.7:
            node["intra_node"] = _inside(NO_PEER_TO_PEER)
        clusters[name] = {"nodes": rng.choice([1, 2, 2, 3]) if count == 2 else 2, "node": node}
    links = _trunks(rng, ("a", "b"), clusters) if len(clusters) > 1 else []
    model = _model(rng, rng.choice([6, 8, 9, 10, 12]), rng.choice(HIDDEN[1:]))
    workload = _workload(rng, model, "bf16")
    return {"format": FORMAT, "clusters": clusters, "links": links, "workload": workload}, rng.choice(LONG)


def size(request: Request, enough: int | None = None) -> int:
    """Number of pipelines of all shapes; counting stops above `enough`."""
    known: dict[object, int] = {}
    found = 0
    for shape in (one for one in shapes(request) if one.recompute != BLOCK):
        key = shape.tp, shape.dp, shape.vpp, shape.schedule == "interleaved" and shape.microbatch_size
        if key not in known:
            known[key] = sum(1 for _ in itertools.islice(pipelines(request, shape), (enough or 10**9) + 1))
        found += known[key]
        if enough is not None and found > enough:
            break
    return found


def _given(wishes: Wishes) -> dict[str, Any]:
    return {key: value for key, value in asdict(wishes).items() if value is not None}


def _fleet(rng: random.Random) -> dict[str, Any]:
    number = rng.choice([1, 1, 2, 2, 2, 3])
    clusters: dict[str, Any] = {}
    left, device = DEVICES, ""
    for index, name in enumerate("abc"[:number]):
        count = rng.choice([one for one in (1, 2, 2, 3, 4, 4, 4) if one <= left - (number - index - 1)])
        most = (left - (number - index - 1)) // count
        nodes = rng.randint(1, min(3, most) if number > 1 or count > 1 else min(4, most))
        left -= nodes * count
        device = device if device and rng.random() < 0.5 else rng.choice(list(INSIDE))
        clusters[name] = {"nodes": nodes, "node": _node(rng, count, device)}
    links = [link for pair in itertools.combinations(clusters, 2) for link in _trunks(rng, pair, clusters)]
    return {"format": FORMAT, "clusters": clusters, "links": links}


def _node(rng: random.Random, count: int, device: str, rdma: bool = False) -> dict[str, Any]:
    nics = [{"type": "ethernet", "bandwidth": f"{rng.choice(ETHERNET)} Gbit/s", "count": 1}]
    if rdma or rng.random() < 0.6:
        kind, rate, many = rng.choice(["infiniband", "roce"]), rng.choice(RDMA), rng.choice([1, 1, 2, 4])
        nics.append({"type": kind, "bandwidth": f"{rate} Gbit/s", "count": many})
    inside = rng.choice(INSIDE[device])
    return {"devices": {"type": device, "count": count}, "intra_node": _inside(inside), "nics": nics}


def _inside(name: str) -> str | dict[str, Any]:
    """A link of the catalogue, or the facts of PCIe without peer-to-peer."""
    if name != NO_PEER_TO_PEER:
        return name
    shares = dict.fromkeys(("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"), 0.9)
    return {"bandwidth": "6 GB/s", "latency": "8 us", "overhead": "12 us", "efficiency": shares, "interference": 0.02}


def _trunks(rng: random.Random, pair: tuple[str, str], clusters: dict[str, Any]) -> list[dict[str, Any]]:
    kinds = [{nic["type"] for nic in clusters[name]["node"]["nics"]} for name in pair]
    latency = rng.choice(["10 us", "50 us", "1 ms"])
    links = [{"between": list(pair), "type": "ethernet", "bandwidth": f"{rng.choice(TRUNKS)} Gbit/s", "latency": latency}]
    for kind in sorted(kinds[0] & kinds[1] - {"ethernet"}):
        if rng.random() < 0.6:
            links.append({"between": list(pair), "type": kind, "bandwidth": f"{rng.choice(RDMA)} Gbit/s", "latency": latency})
    return links


def _hidden(rng: random.Random, document: dict[str, Any]) -> int:
    """A hidden size; in half of the cases a large one, for which the model takes 10 to 70 % of the fleet's memory."""
    nodes = [(cluster["nodes"], cluster["node"]["devices"]) for cluster in document["clusters"].values()]
    memory = sum(float(number * devices["count"]) * catalog.device(devices["type"]).memory for number, devices in nodes)
    room = rng.uniform(0.1, 0.7) * memory / STATE if rng.random() < 0.5 else 0.0
    return max([rng.choice(HIDDEN), *(one for one in (*HIDDEN, *LARGE) if 72 * one**2 + 200_000 * one < room)])


def _model(rng: random.Random, layers: int, hidden: int) -> dict[str, Any]:
    heads, mlp = hidden // rng.choice([64, 128]), rng.choice(["gelu", "swiglu"])
    return {
        "name": "drawn",
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "kv_heads": heads if rng.random() < 0.6 else 4,
        "ffn_hidden": 4 * hidden if mlp == "gelu" else 11 * hidden // 4,
        "vocab": rng.choice(VOCABULARIES),
        "mlp": mlp,
        "tied_embeddings": rng.random() < 0.5,
    }


def _workload(rng: random.Random, model: dict[str, Any], precision: str) -> dict[str, Any]:
    batch, seq_len = rng.choice(BATCHES), rng.choice(SEQUENCES)
    return {"model": model, "global_batch_size": batch, "seq_len": seq_len, "precision": precision}


def _precision(rng: random.Random, document: dict[str, Any]) -> str:
    """fp16, or bf16 if some device supports it; then the planner cannot use clusters that do not."""
    old = {"v100-sxm2-16gb", "t4"}
    devices = [cluster["node"]["devices"]["type"] for cluster in document["clusters"].values()]
    able = any(device not in old for device in devices)
    some = any(device in old for device in devices)
    return "bf16" if able and rng.random() < (0.1 if some else 0.8) else "fp16"
