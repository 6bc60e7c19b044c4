"""Configurations with the same stand-in have the same costs of stages."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from sim.analytic.alike_configs import passing_alike, summing_alike
from sim.analytic.stage_costs import StageCosts
from sim.hardware.cluster import Device
from sim.network.collective_costs import CollectiveCosts
from sim.network.paths import Capacities
from sim.network.replica_rows import ReplicaRows
from sim.plan.parallel_config import ParallelConfig
from sim.workload.workload import Workload
from tests import builders as make


def costs_of(config: ParallelConfig) -> StageCosts:
    """Costs of stages that fill nodes of four devices, each with a cache of its own."""
    fleet = make.fleet(make.cluster(nodes=2, devices=4))
    slots = range(config.dp * config.cp)
    placed = [tuple(Device("c", *divmod(slot * config.tp + i, 4)) for i in range(config.tp)) for slot in slots]
    collectives = CollectiveCosts(fleet, config, ReplicaRows.of(fleet, tuple(placed)), Capacities(fleet))
    experts = {"experts": 4, "experts_per_token": 2} if config.splits_experts else {}
    return StageCosts(Workload(make.model(4, **experts), 16, 64), config, collectives)


def configs() -> Iterator[ParallelConfig]:
    """Configurations of one and of several replicas that differ in all that may not matter."""
    dense = [(1, 1, 1), (2, 1, 1), (2, 2, 1), (1, 4, 1), (1, 2, 2)]
    divided = [(1, 2, 1, 2), (1, 8, 1, 2), (1, 4, 1, 4), (1, 8, 1, 4), (1, 2, 2, 2), (1, 4, 2, 4), (2, 2, 1, 2), (2, 4, 1, 2)]
    degrees = [*((*one, 1) for one in dense), *divided]
    kinds = itertools.product(("1f1b", "zb-h1", "interleaved"), (1, 2), ("none", "full"), (0, 1, 2, 3), (True, False))
    for (tp, dp, cp, ep), (schedule, size, recompute, zero, ahead) in itertools.product(degrees, kinds):
        yield ParallelConfig(
            tp, 2, dp, cp, ep=ep, vpp=2 if schedule == "interleaved" else 1, schedule=schedule, microbatch_size=size,
            num_microbatches=(4 // size,) * dp, zero_stage=zero, recompute=recompute, overlap_param_gather=ahead,
            sequence_parallel=tp > 1,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("stand_in", "cost"),
    [
        (passing_alike, lambda costs: costs.alone(2, True, False)),
        (lambda config: summing_alike(config, measured=False), lambda costs: costs.synchronised(3, False, True)),
    ],
    ids=["passes", "sums"],
)
def test_configurations_with_one_stand_in_cost_the_same(
    stand_in: Callable[[ParallelConfig], ParallelConfig], cost: Callable[[StageCosts], tuple[float, ...]]
) -> None:
    """Those with the same passes may have unlike numbers of replicas."""
    found: dict[ParallelConfig, list[tuple[float, ...]]] = {}
    for config in configs():
        found.setdefault(stand_in(config), []).append(cost(costs_of(config)))
    assert all(len(set(costs)) == 1 for costs in found.values())
    assert max(map(len, found.values())) >= 4
