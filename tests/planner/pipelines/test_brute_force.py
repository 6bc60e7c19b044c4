"""The search against every plan of unlike pipelines on whole nodes: all sets of nodes, tp, pp, dp, layers and divisions."""

from __future__ import annotations

import random

import pytest

from benchmarks.certificates.pipelines import BATCH, LAYERS, NEAR, judge, owned
from planner.pipelines.search import best
from planner.request import Request
from sim.hardware.cluster import Cluster, Trunk
from tests import builders as make
from tests.more import after
from tests.planner.builders import request

FIRST = (34, 19, 9, 7)
SEEDS = (*FIRST, *(seed for seed in range(50) if seed not in FIRST))
QUICK = 2
"""Number of seeds that `make test` tries; `make test-more` tries a few more, `make test-deep` all others."""
SLOWER = {35: 0.003, 42: 0.003, 48: 0.003}
"""How much slower the found plan is at most, by seed; 0 for others."""
OWNED = (3, 7, 80, 129)
"""Seeds of two or three devices, which take a second. On the last ones, plans differ from the best columns in several things
at once, and in when weights are gathered."""
QUICK_OWNED = 2
"""Number of these that `make test` tries."""
APART = (148, 183)
"""Seeds on which the fastest plan is several changes apart from the best columns, one of them in both pipelines, or has two
replicas on a node whose share of the batch is one sample."""
JUDGED = 50
"""Number of these fleets."""
LONG = (2, 4)
"""Seeds of few long sequences on which the fastest plan has context parallelism (5.1 and 10.2 % faster than without)."""


def drawn(seed: int) -> Request:
    """Two clusters of up to two nodes of one or two devices, and a model of three layers, at random: computing takes most of
    the time, or the sum of gradients does."""
    rng = random.Random(seed)
    rate, nodes = rng.choice([1e8, 3e8, 1e9]), rng.choice([(1, 1), (1, 1), (1, 1), (2, 1)])
    clusters: list[Cluster] = []
    for name, number, speed in zip("ab", nodes, (rng.choice([1e12, 2e12, 3e12]), 1e12), strict=True):
        spec, devices = make.device(f"chip-{name}", speed, 1e12), rng.choice([1, 2]) if number == 1 else 1
        clusters.append(make.cluster(name, number, devices, (make.nic(bandwidth=rate),), spec))
    machines = make.fleet(*clusters, trunks=(Trunk(("a", "b"), "infiniband", rate, 0.0),))
    return request(machines, make.model(LAYERS), BATCH, seq_len=256)


@pytest.mark.parametrize("seed", after(QUICK, SEEDS, last=6))
def test_no_plan_is_much_faster(seed):
    """The gradients of these models take about as long as their compute. The search has few plans of a part, where the brute
    force has all of them, and changes the best of its solutions only. No bound is above the fastest of all plans."""
    found = judge(drawn(seed), seed, ("1f1b",))
    assert found.bound_s <= found.best_s
    assert found.slower <= SLOWER.get(seed, 0.0) + 1e-9


@pytest.mark.parametrize(
    "seed", after(QUICK_OWNED, (*OWNED, *APART, *(seed for seed in range(JUDGED) if seed not in OWNED)), last=4)
)
def test_no_plan_is_much_faster_on_what_users_own(seed):
    """Under three schedules."""
    found = judge(owned(seed), seed)
    assert found.bound_s <= found.best_s
    assert found.slower <= NEAR


@pytest.mark.parametrize("seed", after(1, (*LONG, *(seed for seed in range(40) if seed not in LONG)), last=2))
def test_no_plan_is_much_faster_on_long_sequences(seed):
    found = judge(owned(seed, long=True), seed)
    assert found.bound_s <= found.best_s
    assert found.slower <= NEAR


def test_context_parallelism_is_found_where_it_pays():
    assert {pipeline.config.cp for pipeline in best(owned(LONG[0], long=True), 1.0).plan.pipelines} == {2}
