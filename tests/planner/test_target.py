"""A target joins vendors as it says, and names the first property that it cannot express."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.request import Request
from tests import builders as make
from tests.planner.builders import on_one_cluster, on_two_clusters
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
