"""Partitions of clusters into islands by the bandwidth of their links."""

from __future__ import annotations

from dataclasses import replace

from planner.islands.partitions import partitions, peak, with_some_left_out
from planner.request import Request
from sim.hardware.cluster import Trunk
from tests.builders import cluster, device, fleet, plan


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


def test_some_islands_are_left_out_but_never_all_but_one():
    whole = request((("a", "b", 1.0),))
    three = (("a",), ("b",), ("c", "d"))
    assert with_some_left_out(whole, three) == [(("a",), ("b",)), (("a",), ("c", "d")), (("b",), ("c", "d"))]
    assert with_some_left_out(whole, three[:2]) == []
    assert len(with_some_left_out(whole, (("a",), ("b",), ("c",), ("d",)))) == 4 + 6


def test_of_many_islands_the_slowest_are_left_out_one_after_the_other():
    speeds = {"a": 3e14, "b": 1e14, "c": 5e14, "d": 2e14, "e": 4e14}
    where = fleet(*(cluster(name, spec=device(name, speed)) for name, speed in speeds.items()))
    topology = plan(where).topology
    five = tuple((name,) for name in speeds)
    found = with_some_left_out(Request(topology, topology.workload), five)
    assert ["".join(name for (name,) in some) for some in found] == ["acde", "ace", "ce"]
    assert peak(Request(topology, topology.workload), ("a", "b")) == 4e14
