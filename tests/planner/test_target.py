"""A target joins vendors as it says, and names the first property that it cannot express."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from planner.request import Request
from planner.search.mixed import mixed_placements
from sim.hardware.cluster import Trunk
from tests import builders as make
from tests.planner.builders import on_one_cluster, on_two_clusters, request
from tests.planner.targets import target


def fleet(communicator: str):
    vendors = {"a": "x", "b": "y", "c": "x"}
    clusters = (make.cluster(name, spec=make.device(name, vendor=vendor)) for name, vendor in vendors.items())
    return make.fleet(*clusters, communicator=communicator)


@pytest.mark.parametrize(
    ("vendors", "communicator", "joins"),
    [
        ("any", "vendor", True),
        ("one", "vendor", False),
        ("one", "unified", False),
        ("joined", "vendor", False),
        ("joined", "unified", True),
    ],
)
def test_vendors_are_joined_as_the_target_says(vendors, communicator, joins):
    found = target(vendors=vendors)
    assert found.joins(fleet(communicator), ["a", "b"]) == joins
    assert found.joins(fleet(communicator), ["a", "c"])


def test_a_fault_is_of_the_layout_first():
    def fault(pp: int, schedule: str) -> str:
        return target().fault(make.plan(make.fleet(make.cluster(devices=3)), pp=pp, schedule=schedule, microbatches=3))

    assert fault(3, "gpipe") == "schedule gpipe: 1f1b"
    assert fault(3, "1f1b") == "pp 3: at most 2"
    assert fault(2, "1f1b") == ""


def test_clusters_of_excluded_vendors_are_not_used():
    def names(question: Request) -> list[str]:
        return [cluster.name for cluster in question.clusters()]

    question = on_two_clusters()
    assert names(question) == ["a", "b"]
    assert names(replace(question, target=target(excluded_vendors=("acme",)))) == []
    assert names(replace(on_one_cluster(), target=target(excluded_vendors=("other",)))) == ["c"]


def on_three_clusters(vendors: str) -> Request:
    """Clusters of vendors x, y and x, one device a node; a target that joins vendors as it says."""
    devices = {"a": "x", "b": "y", "c": "x"}
    nics = (make.nic("ethernet", 1e6),)
    clusters = [make.cluster(name, 3, nics=nics, spec=make.device(f"chip-{name}", vendor=v)) for name, v in devices.items()]
    trunks = tuple(Trunk(pair, "ethernet", 1e6, 0.0) for pair in itertools.combinations("abc", 2))
    question = request(make.fleet(*clusters, trunks=trunks), make.model(4), 12)
    return replace(question, target=target(vendors=vendors))


def test_mixed_stages_are_on_the_clusters_of_one_vendor_where_the_target_joins_none():
    """The bound of plans with mixed stages holds for these, too: it is not that of no plan at all."""
    one, free = on_three_clusters("one"), on_three_clusters("any")
    assert [[cluster.name for cluster in some] for some in one.joinable()] == [["a", "c"], ["b"]]
    assert [[cluster.name for cluster in some] for some in free.joinable()] == [["a", "b", "c"]]
    for question, names in ((one, {"a", "c"}), (free, {"a", "b", "c"})):
        placed = list(mixed_placements(question))
        assert placed
        used = [{run.cluster.name for stage in stages for run in stage} for _, stages in placed]
        assert set().union(*used) == names and all(len(some) > 1 for some in used)
