"""A fleet with prices and watts, on which plans are made for other objectives than the step time."""

from __future__ import annotations

from planner.request import Request
from sim.hardware.cluster import Trunk
from tests import builders as make
from tests.planner.builders import SEARCHED_ONCE, request

FACTS = {"fast": {"price": 1.0, "watts": 100.0}, "slow": {"price": 1.0, "watts": 100.0}}
"""As dear and as thirsty as the fast devices, which are twice as fast."""


def two_clusters(facts: dict[str, dict[str, float]] = FACTS, size: int = 6) -> Request:
    """Two nodes of two fast devices, one of two slow ones, `size` layers and samples; facts of the devices are given."""
    nics = (make.nic("ethernet", 1e8),)
    clusters = [
        make.cluster(name, nodes=nodes, devices=2, nics=nics, spec=make.device(name, speed, **facts[name]))
        for name, nodes, speed in (("fast", 2, 4e9), ("slow", 1, 2e9))
    ]
    machines = make.fleet(*clusters, trunks=(Trunk(("fast", "slow"), "ethernet", 1e8, 0.0),))
    return request(machines, make.model(size), size, SEARCHED_ONCE)
