"""Machines whose communication takes no time, and the seconds of layers on them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from hypothesis import strategies as st

from sim.hardware.cluster import Cluster, Fleet, Trunk
from sim.kernels import compute
from sim.plan.plan import Plan
from tests import builders
from tests.builders import wire

FREE = 1e40
"""A bandwidth at which nothing takes time."""


def free_wires() -> Fleet:
    """Eight nodes of eight devices, and communication that takes no time."""
    fast = builders.cluster(nodes=8, devices=8, nics=(builders.nic(bandwidth=FREE),), intra_node=wire(bandwidth=FREE))
    return builders.fleet(replace(fast, node=replace(fast.node, device=replace(fast.node.device, host_bandwidth=FREE))))


def idle_fleet(draw: st.DrawFn, degrees: tuple[int, int, int], slow: float) -> Fleet:
    """A drawn fleet on which no flow waits for another: a cluster for each pipeline rank of (tp, pp, dp), whose messages take
    time by latency and overhead alone. slow: by how much collectives slow compute."""
    tp, pp, dp = degrees
    seconds = st.sampled_from([0.0, 1e-5, 1e-3, 0.02])

    def cluster_of_rank(name: str) -> Cluster:
        speed = draw(st.sampled_from([1e13, 1.7e13, 0.9e13]))
        card = builders.nic(bandwidth=FREE, count=tp, latency=draw(seconds), overhead=draw(seconds), interference=slow)
        inside = wire(bandwidth=FREE, latency=draw(seconds) / 100, interference=slow)
        spec = builders.device(f"chip {speed}", speed, host_bandwidth=FREE)
        return builders.cluster(name, nodes=dp, devices=tp, nics=(card,), spec=spec, intra_node=inside)

    names = [f"c{index}" for index in range(pp)]
    trunks = tuple(Trunk(pair, "infiniband", FREE, draw(seconds)) for pair in pairwise(names))
    return builders.fleet(*map(cluster_of_rank, names), trunks=trunks)


def slot(plan: Plan, layers: int) -> float:
    """Forward and backward of `layers` layers and one microbatch."""
    device = plan.fleet.spec(plan.placement[0])
    return layers * sum(compute.layer_seconds(device, plan.workload, plan.config))
