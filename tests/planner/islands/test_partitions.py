"""Partitions of clusters into islands by the bandwidth of their links."""

from __future__ import annotations

from dataclasses import replace

from planner.islands.partitions import partitions
from planner.request import Request
from sim.hardware.cluster import Trunk
from tests.builders import cluster, fleet, plan


def request(trunks: tuple[tuple[str, str, float], ...]) -> Request:
    where = fleet(*(cluster(name) for name in "abcd"), trunks=tuple(Trunk((a, b), "ethernet", r, 0.0) for a, b, r in trunks))
    topology = plan(where).topology
    return Request(topology, topology.workload)


def test_thin_links_are_cut_first():
    assert partitions(request((("a", "b", 3.0), ("b", "c", 1.0), ("c", "d", 2.0)))) == [
        (("a", "b"), ("c", "d")),
        (("a", "b"), ("c",), ("d",)),
        (("a",), ("b",), ("c",), ("d",)),
    ]


def test_clusters_without_links_are_islands_anyway():
    assert partitions(request((("a", "c", 1.0),))) == [(("a", "c"), ("b",), ("d",)), (("a",), ("b",), ("c",), ("d",))]


def test_links_between_the_same_clusters_add_up():
    double = (("a", "b", 2.0), ("b", "a", 2.0), ("b", "c", 3.0), ("c", "d", 9.0))
    assert partitions(request(double))[0] == (("a", "b"), ("c", "d"))


def test_one_cluster_is_no_partition():
    one = request((("a", "b", 1.0),))
    assert partitions(replace(one, machines=(("a", 1),))) == []
