"""The search against every stage there is: all sizes of groups, microbatches, rounds and kept experts of small models."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from planner.disaggregation.search import best, sides
from sim.disaggregation import memory
from sim.disaggregation.costs import TaskCosts, step_seconds
from sim.disaggregation.stage import DisaggregatedStage
from sim.hardware.cluster import Trunk
from sim.hardware.topology import Topology
from sim.workload.workload import Workload
from tests import builders as make
from tests.more import after
from tests.planner.builders import request

FIRST = (6, 25, 52, 29, 24, 9, 13, 37)
SEEDS = (*FIRST, *(seed for seed in range(60) if seed not in FIRST))
QUICK, MORE = 3, len(FIRST)
"""Number of seeds that `make test`, and `make test-more`, try."""
SLOWER = {29: 0.015}
"""How much slower the found stage is, by seed; 0 for others. In 29 two smaller groups whose layers keep 2, 4 and 2 experts are
faster, and are more than `NEAR` slower before they are improved."""


def drawn(seed: int) -> tuple[Topology, Workload]:
    """Two clusters and a model of three layers, at random: computing, sending or launching takes most of the time."""
    rng = random.Random(seed)
    new, old = rng.choice([(1, 1), (2, 2), (2, 1), (1, 2), (4, 2)])
    speeds, rate = (rng.choice([1e12, 2e12, 4e12]), rng.choice([3e11, 1e12, 2e12])), rng.choice([1e9, 3e9, 1e10, 1e12])
    launch = rng.choice([0.0, 1e-5])
    clusters = [
        make.cluster(
            name, nodes, nics=(make.nic(bandwidth=rate),), spec=make.device(f"chip-{name}", speed, 1e12, launch=launch)
        )
        for name, nodes, speed in zip(("new", "old"), (new, old), speeds, strict=True)
    ]
    machines = make.fleet(*clusters, trunks=(Trunk(("new", "old"), "infiniband", 1e13, 0.0),))
    shape = {"experts": rng.choice([4, 6, 8]), "experts_per_token": rng.choice([1, 2]), "mlp": "swiglu"}
    model = make.model(3, 192, ffn_hidden=rng.choice([96, 192, 384]), **shape)
    whole = request(machines, model, rng.choice([4, 6, 8, 12]), seq_len=rng.choice([128, 256, 1024]))
    return whole.topology, whole.workload


def every(topology: Topology, workload: Workload) -> Iterator[float]:
    """Seconds of all stages that fit, by the closed form."""
    experts, batch = workload.model.experts, workload.global_batch_size
    for attention, others in sides(topology, workload):
        for groups, passes, recompute in itertools.product((1, 2), range(1, batch + 1), ("none", "full")):
            if len(attention) % groups or len(others) % groups or batch % (len(attention) * passes):
                continue
            m, n = len(attention) // groups, len(others) // groups
            kept = [number for number in range(experts) if number % m == 0 == (experts - number) % n]
            for microbatches in (number for number in range(1, passes + 1) if kept and passes % number == 0):
                rounds = passes // microbatches
                start = DisaggregatedStage(
                    topology, workload, attention, others, groups, microbatches, rounds, (kept[0],) * 3, recompute
                )
                costs = TaskCosts(start)
                for layers in itertools.product(kept, repeat=3):
                    stage = replace(start, kept=layers)
                    if memory.fits(stage):
                        yield step_seconds(stage, costs.of(stage))


@pytest.mark.parametrize("seed", after(QUICK, SEEDS, MORE))
def test_no_stage_is_faster(seed):
    topology, workload = drawn(seed)
    found = best(topology, workload)
    assert found is not None
    fastest, own = min(every(topology, workload)), step_seconds(found.stage)
    assert fastest * (1 - 1e-9) <= own <= fastest * (1 + 1e-4 + SLOWER.get(seed, 0.0))
