"""Parts of small fleets of devices that users own, with a small model, which brute force can search."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

from benchmarks.owned_fleets import NODES
from planner.request import Request, Wishes
from sim.formats.documents import parse
from sim.formats.topology import from_document

EXPERTS = {"experts": 4, "experts_per_token": 2}
"""A small mixture."""


def cluster(device: str, nodes: int, count: int, rate: int) -> dict[str, Any]:
    """A cluster of nodes with so many devices and one Ethernet NIC of `rate` Gbit/s, as a topology file has it."""
    nics = [{"type": "ethernet", "bandwidth": f"{rate} Gbit/s", "count": 1}]
    return {"nodes": nodes, "node": {"devices": {"type": device, "count": count}, "intra_node": NODES[device][1], "nics": nics}}


def link(between: Iterable[str], rate: int, is_far: bool = False) -> dict[str, Any]:
    """Ethernet of `rate` Gbit/s between two clusters; is_far: at two sites, where the window of TCP limits each device."""
    far = {"latency": "5 ms", "window": "4 MiB"} if is_far else {"latency": "20 us"}
    return {"between": [*between], "type": "ethernet", "bandwidth": f"{rate} Gbit/s", **far}


def model(layers: int, hidden: int, tied: bool, experts: bool) -> dict[str, Any]:
    """A small model; experts: a mixture."""
    return {
        "name": f"tiny-{hidden}", "layers": layers, "hidden": hidden, "heads": 8, "ffn_hidden": 4 * hidden, "vocab": 8192,
        "tied_embeddings": tied, **(EXPERTS if experts else {}),
    }  # fmt: skip


def request(
    name: str, clusters: dict[str, Any], links: list[dict[str, Any]], workload: dict[str, Any], wishes: Wishes
) -> Request:
    """A request without a time limit for such a fleet."""
    document = {"format": "holmes-sim/topology/1", "name": name, "clusters": clusters, "links": links, "workload": workload}
    topology = from_document(parse(name, json.dumps(document)))
    assert topology.workload is not None
    return Request(topology, topology.workload, wishes, math.inf)
