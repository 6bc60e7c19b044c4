"""Small fleets whose clusters may be islands."""

from __future__ import annotations

from planner.request import Request, Wishes
from sim.formats import topology
from sim.formats.edits import edited
from sim.hardware.topology import Topology

PINS = Wishes(tp=1, pp=1, microbatch_size=1, schedule="1f1b", recompute="none", zero_stage=1)
"""Layouts that are searched in a fraction of a second."""


def slow_trunk(bandwidth: str = "2 Gbit/s") -> Topology:
    """Two equal sites of two devices each."""
    return edited(topology.load("topologies/lab/lab-slow-trunk.yaml"), {"links[0].bandwidth": bandwidth})


def three_clusters() -> Topology:
    """Three unlike clusters of the lab."""
    return topology.load("topologies/lab/lab-three-clusters.yaml")


def request(where: Topology, wishes: Wishes = PINS, seconds: float = 20.0) -> Request:
    """A request for the workload of a topology."""
    assert where.workload is not None
    return Request(where, where.workload, wishes, seconds)
