"""Stages of unlike degrees on shared hosts, as FlagScale takes them: several only in the last mesh, or without replicas."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holmes_sim import exporters
from planner.placement.shared_hosts import ANY_NUMBER, MANY, Most, SharedHosts, on_shared_hosts
from planner.request import Request
from sim.hardware.cluster import Trunk
from tests import builders as make
from tests.planner.builders import request, shape


def question(tied: bool = False) -> Request:
    """Three nodes of eight devices, and two of four, for FlagScale."""
    nics = (make.nic("ethernet", 1e9),)
    spec = make.device(vendor="nvidia")
    clusters = [make.cluster(name, nodes, count, nics, spec=spec) for name, nodes, count in (("a", 3, 8), ("b", 2, 4))]
    trunk = Trunk(("a", "b"), "ethernet", 1e10, 1e-6)
    asked = request(make.fleet(*clusters, trunks=(trunk,)), make.model(12, tied_embeddings=tied), 8)
    return replace(asked, target=exporters.target("flagscale"))


def most(asked: Request, degrees: tuple[int, int], other: tuple[int, int] = (1, 4)) -> Most:
    """Of stages on `a` with this tp and dp, of four samples, beside one on `b`."""
    (a, b), ((tp, dp), (wide, replicas)) = asked.clusters(), (degrees, other)
    own = a, shape(tp=tp, dp=dp, microbatch_size=4 // dp, recompute="none")
    return SharedHosts(asked).most(own, [(b, shape(tp=wide, dp=replicas, microbatch_size=4 // replicas, recompute="none"))])


@pytest.mark.parametrize(
    ("degrees", "stages", "taken"),
    [
        ((1, 2), 4, Most(1, 4)),  # four stages fill a host: a mesh, which must be the last one
        ((2, 2), 2, Most(1, 2)),
        ((4, 1), 2, ANY_NUMBER),  # one replica is joined in order
        ((2, 4), 1, ANY_NUMBER),  # a stage fills a host
        ((4, 4), 1, ANY_NUMBER),  # and two hosts
    ],
)
def test_stages_on_a_shared_host_must_be_the_last_mesh(degrees, stages, taken):
    asked = question()
    tp, dp = degrees
    assert on_shared_hosts((next(iter(asked.clusters())), shape(tp=tp, dp=dp))) == stages
    assert most(asked, degrees) == taken


def test_with_a_tied_embedding_the_target_is_asked_with_equal_ends():
    assert most(question(tied=True), (1, 2)) == Most(1, MANY)


def test_without_a_target_or_a_neighbour_of_unlike_degrees_nothing_is_limited():
    asked = question()
    assert most(replace(asked, target=None), (1, 2)) == ANY_NUMBER
    assert most(asked, (1, 2), other=(1, 2)) == ANY_NUMBER
