"""State shared by blocks of `zero_shard_size` ranks: less memory traffic across nodes, more memory on each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holmes_sim.cases import load
from sim.analytic import plan_costs, stage_amounts
from sim.engine.engine import simulate
from sim.errors import PlanError
from sim.kernels import compute, memory
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from tests import builders
from tests.builders import cluster, fleet, nic, wire

PARAMETERS = 1.0e9


def two_nodes(replicas: int = 8, **facts: object) -> Plan:
    """Eight ranks on two nodes of four: 100 GB/s inside, a NIC of 10 GB/s for each device."""
    inside = wire(bandwidth=1e11)
    machines = fleet(cluster(nodes=2, devices=4, nics=(nic(bandwidth=1e10, count=4),), intra_node=inside))
    switches = {"overlap_grad_reduce": False, "overlap_param_gather": False} | facts
    return builders.plan(machines, dp=replicas, layers=(6,), shape={"hidden": 3072}, **switches)


def synchronising(plan: Plan) -> float:
    """Seconds of a step that data-parallel collectives take, where nothing hides them."""
    return sum(span.seconds for span in simulate(plan).spans if span.lane == "dp" and span.rank == 0)


def test_a_gradient_is_scattered_in_its_block_and_summed_among_copies() -> None:
    """Blocks of four: 3/4 G over the node's wire, 2 x 1/2 of G/4 over each device's NIC; weights 3/4 W inside the node."""
    plan = two_nodes(zero_shard_size=4)
    parameters = memory.stage_parameters(plan.workload, plan.config, 6, True, True)
    gradients, weights = 4 * parameters, 2 * parameters
    expected = 3 / 4 * gradients / 1e11 + gradients / 4 / 1e10 + 3 / 4 * weights / 1e11
    assert synchronising(plan) == pytest.approx(expected, rel=1e-9)


def test_blocks_across_nodes_sum_their_copies_inside() -> None:
    """Blocks of two are a pair inside a node; of each of their halves there are four copies, on two nodes.

    Its ring crosses twice, so 3/2 of G/2 goes over a NIC, two rings side by side over the four NICs of a node.
    """
    plan = two_nodes(zero_shard_size=2)
    parameters = memory.stage_parameters(plan.workload, plan.config, 6, True, True)
    gradients, weights = 4 * parameters, 2 * parameters
    expected = 1 / 2 * gradients / 1e11 + 3 / 2 * gradients / 2 / 2e10 + 1 / 2 * weights / 1e11
    assert synchronising(plan) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("zero_stage", [1, 2, 3])
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("size", [2, 4])
def test_the_engine_meets_the_closed_form(zero_stage: int, overlap: bool, size: int) -> None:
    switches = {"overlap_grad_reduce": overlap, "overlap_param_gather": overlap}
    plan = two_nodes(zero_shard_size=size, zero_stage=zero_stage, **switches)
    assert plan_costs.step_seconds(plan) <= simulate(plan).step_s * (1 + 1e-9)
    if zero_stage == 1:
        assert simulate(plan).step_s == pytest.approx(plan_costs.step_seconds(plan), rel=1e-9)


@pytest.mark.parametrize("zero_stage", [1, 2, 3])
def test_all_ranks_as_one_block_are_no_blocks(zero_stage: int) -> None:
    whole, none = two_nodes(zero_shard_size=8, zero_stage=zero_stage), two_nodes(zero_stage=zero_stage)
    assert simulate(whole).spans == simulate(none).spans
    assert memory.peak_memory(whole) == memory.peak_memory(none)


def test_half_the_sharers_hold_twice_the_optimizer_state() -> None:
    plan = two_nodes(zero_shard_size=4)
    assert memory.state_bytes(PARAMETERS, plan.workload, plan.config) == PARAMETERS * (2 + 4 + 12 / 4)
    fully = replace(plan.config, zero_stage=3)
    assert memory.state_bytes(PARAMETERS, plan.workload, fully) == PARAMETERS * (2 + 4 + 12) / 4
    parameters = memory.stage_parameters(plan.workload, plan.config, 6, True, True)
    device = plan.fleet.spec(plan.placement[0])
    update = stage_amounts.optimizer_seconds(device, plan.workload, plan.config, 6, True, True)
    assert update == compute.optimizer_seconds(device, parameters / 4, parameters)


def test_blocks_count_ranks_of_context_parallelism_too() -> None:
    """cp 2 x dp 4 hold the same weights as dp 8 do, in the same order: their gradients take the same time."""
    both = two_nodes(zero_shard_size=4, cp=2, replicas=4)
    assert synchronising(both) == pytest.approx(synchronising(two_nodes(zero_shard_size=4)), rel=1e-9)


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"zero_shard_size": 3}, "zero_shard_size 3 does not divide dp 8 x cp 1, the ranks that share the state"),
        ({"zero_shard_size": 1}, "zero_shard_size 1 with zero_stage 1 has no effect; leave it out"),
        ({"zero_shard_size": 4, "zero_stage": 0}, "zero_shard_size 4 with zero_stage 0 has no effect; leave it out"),
        (
            {"zero_shard_size": 4, "ep": 2},
            "zero_shard_size 4 is not modelled with ep 2: all ranks with an expert share its state",
        ),
    ],
)
def test_what_cannot_be_is_refused(facts: dict[str, int], message: str) -> None:
    with pytest.raises(PlanError) as caught:
        ParallelConfig(dp=8, num_microbatches=(1,) * 8, **facts)
    assert str(caught.value) == message


def test_a_case_sets_the_zero_shard_size(tmp_path, pytestconfig) -> None:  # type: ignore[no-untyped-def]
    written = (pytestconfig.rootpath / "validation" / "internevo.yaml").read_text(encoding="utf-8")
    for size, expected in (("4", (1, 4)), ("1", (0, 8))):
        (tmp_path / "cases.yaml").write_text(
            written.replace("zero_shard_size: 8\n", f"zero_shard_size: {size}\n", 1), encoding="utf-8"
        )
        plan = load(tmp_path / "cases.yaml")[0].plan
        assert plan is not None
        assert (plan.config.zero_stage, plan.config.shards) == expected
