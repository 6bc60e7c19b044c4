"""A fleet of two clusters, one twice as fast, for tests of costs of mixed stages."""

from __future__ import annotations

from planner.request import Request
from sim.hardware.cluster import Trunk
from tests import builders as make
from tests.planner.builders import request

BYTES = 64 * 96 * 2
"""Bytes of a message: 64 tokens of 96 values of 2 bytes."""


def fast_and_slow(memories: tuple[float, float] = (80e9, 40e9)) -> Request:
    """Nodes of two devices, twice as fast in cluster a; Ethernet of 1e7 bytes a second, a trunk of 1e6."""
    nics = (make.nic("ethernet", 1e7),)
    clusters = [
        make.cluster(name, 2, 2, nics, make.device(f"chip-{name}", speed, 1e30, memory=nbytes), make.wire(bandwidth=1e8))
        for name, speed, nbytes in zip("ab", (2e9, 1e9), memories, strict=True)
    ]
    return request(make.fleet(*clusters, trunks=(Trunk(("a", "b"), "ethernet", 1e6, 0.0),)), make.model(4), 8)
