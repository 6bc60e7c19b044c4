"""Stages with two sets of ranks on ideal machines, for tests."""

from __future__ import annotations

import json

from sim.disaggregation.stage import DisaggregatedStage
from sim.hardware.cluster import Device, Fleet, Trunk
from sim.hardware.topology import Topology
from sim.workload.workload import Workload
from tests import builders as make

TOKENS = 64
"""Tokens of a sequence."""
EXCHANGE = float(TOKENS * 96 * 2)
"""Bytes of the tokens of a sequence, each with one expert: 96 values of two bytes."""


def machines(attention: int = 1, experts: int = 1, rate: float = EXCHANGE / 0.5, **facts: object) -> Fleet:
    """Nodes of one ideal device and one NIC of `rate` bytes a second: clusters `new` and `old`, joined by a wide link."""
    sides = (("new", attention), ("old", experts))
    clusters = [
        make.cluster(name, nodes, nics=(make.nic(bandwidth=rate),), spec=make.device(f"chip-{name}", **facts))
        for name, nodes in sides
    ]
    return make.fleet(*clusters, trunks=(Trunk(("new", "old"), "infiniband", 1e3 * rate, 0.0),))


def stage(
    fleet: Fleet | None = None, batch: int = 2, shape: dict[str, object] | None = None, **options: object
) -> DisaggregatedStage:
    """Attention on cluster `new`, experts on `old`; two layers, eight experts, one for a token, two microbatches."""
    fleet = fleet or machines()
    facts = {"experts": 8, "experts_per_token": 1, "ffn_hidden": 192, "mlp": "swiglu"} | (shape or {})
    workload = Workload(make.model(**facts), batch, TOKENS)
    topology = Topology("tiny", "", fleet, workload, json.dumps({"name": "tiny"}))
    devices = (tuple(Device(c.name, node, 0) for node in range(c.nodes)) for c in fleet.clusters)
    return DisaggregatedStage(topology, workload, *devices, **options)
