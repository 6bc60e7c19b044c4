"""The closed form of a step against the engine: equal without contention, and never longer for equal replicas."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sim.analytic import plan_costs
from sim.analytic.evaluator import evaluate
from sim.engine.engine import simulate
from sim.engine.symmetry import fold
from sim.hardware.cluster import Device, Fabric, Trunk
from tests import builders
from tests.builders import any_plan, wire
from tests.sim.ideal_machines import FREE, free_wires


@given(data=st.data())
def test_the_closed_form_is_never_longer_than_the_engine_for_equal_replicas(data: st.DataObject) -> None:
    plan = data.draw(any_plan(ranks=32))
    chunks = [{plan.stages[stage].layers for stage in plan.stages_of(pp_rank)} for pp_rank in range(plan.config.pp)]
    assume(len(fold(plan).representatives) == plan.config.pp and all(len(sizes) == 1 for sizes in chunks))
    assert plan_costs.step_seconds(plan) <= simulate(plan).step_s * (1 + 1e-9)


@given(data=st.data(), number=st.integers(1, 3))
def test_plans_with_other_numbers_of_microbatches_share_all_costs(data: st.DataObject, number: int) -> None:
    plan = data.draw(any_plan(ranks=16))
    more = replace(plan.config, num_microbatches=tuple(number * plan.config.pp + many for many in plan.config.num_microbatches))
    workload = replace(plan.workload, global_batch_size=sum(more.num_microbatches) * more.microbatch_size)
    plans = [plan, replace(plan, config=more, workload=workload, topology=replace(plan.topology, workload=workload))]
    assert plan_costs.steps_seconds(plans) == [plan_costs.step_seconds(one) for one in plans]


def test_the_closed_form_is_never_longer_for_chunks_of_different_sizes() -> None:
    """Pipeline ranks 1 and 2 begin with their first chunk, whose size is not the mean size of their chunks."""
    plan = builders.plan(free_wires(), pp=3, vpp=2, microbatches=6, layers=(1, 1, 3, 3, 1, 3), schedule="interleaved")
    assert plan_costs.step_seconds(plan) <= simulate(plan).step_s * (1 + 1e-9)


@pytest.mark.parametrize("shards", [None, 2])
def test_the_closed_form_follows_the_order_of_a_ring(shards: int | None) -> None:
    """Ranks alternate between two leaves with a narrow spine; the ring of the second plan enters each leaf once."""
    machines = builders.fleet(builders.cluster(nodes=4, fabric=Fabric(2, 8.0)))
    placement = tuple(Device("c", node, 0) for node in (0, 2, 1, 3))
    ranked = builders.plan(machines, dp=4, placement=placement, zero_shard_size=shards)
    listed = replace(ranked, groups=tuple(replace(group, ranks=(0, 2, 1, 3)) for group in ranked.groups))
    for plan in (ranked, listed):
        assert plan_costs.step_seconds(plan) == pytest.approx(simulate(plan).step_s, rel=1e-9)
    if shards is None:  # blocks of shards keep the order of ranks
        assert simulate(listed).step_s < simulate(ranked).step_s


def test_the_closed_form_counts_the_microbatches_of_each_replica() -> None:
    """Three microbatches on the fast device and one on a device of a third of its speed take the same time."""
    fast, slow = (
        builders.cluster("fast", spec=builders.device("fast", 3e10)),
        builders.cluster("slow", spec=builders.device("slow", 1e10)),
    )
    machines = builders.fleet(fast, slow, trunks=(Trunk(("fast", "slow"), "infiniband", 1e12, 0.0),))
    plan = builders.plan(machines, dp=2, microbatches=(3, 1))
    assert plan_costs.step_seconds(plan) <= simulate(plan).step_s * (1 + 1e-9)


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
def test_zero_2_without_overlap_adds_the_reduction_to_each_microbatch(schedule: str) -> None:
    """Two layers of 12 h^2 + 13 h values, embedding, head and a norm, with gradients of 4 bytes: each of two nodes sends half
    of them to the other one, at 1 GB/s. With overlap the network alone decides, because it is slower than compute."""
    reduction = (2 * (12 * 96**2 + 13 * 96) + 2 * 768 * 96 + 2 * 96) * 4 / 2 / 1e9
    machines = builders.fleet(builders.cluster(nodes=2, nics=(builders.nic(bandwidth=1e9),)))

    def each(dp: int, overlap: bool) -> float:
        facts = {"zero_stage": 2, "schedule": schedule, "overlap_grad_reduce": overlap, "overlap_param_gather": False}
        plans = [builders.plan(machines, dp=dp, microbatches=many, **facts) for many in (8, 9)]
        steps = [simulate(plan).step_s for plan in plans]
        closed = [plan_costs.step_seconds(plan) for plan in plans]
        assert closed <= steps if overlap else closed == pytest.approx(steps, rel=1e-9)
        return steps[1] - steps[0]

    compute = each(1, False)
    assert each(2, True) == pytest.approx(reduction, rel=1e-9)
    assert each(2, False) == pytest.approx(compute + reduction, rel=1e-9)
    assert 0 < compute < reduction


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
def test_zero_3_without_overlap_adds_two_gathers_and_a_reduction_to_each_microbatch(schedule: str) -> None:
    """The values of the test above, gathered twice at 2 bytes and reduced at 4: half of them go over each NIC at 1 GB/s."""
    values = 2 * (12 * 96**2 + 13 * 96) + 2 * 768 * 96 + 2 * 96
    machines = builders.fleet(builders.cluster(nodes=2, nics=(builders.nic(bandwidth=1e9),)))

    def each(dp: int, overlap: bool) -> float:
        facts = {"zero_stage": 3, "schedule": schedule, "overlap_grad_reduce": overlap}
        plans = [builders.plan(machines, dp=dp, microbatches=many, **facts) for many in (8, 9)]
        steps = [simulate(plan).step_s for plan in plans]
        if not overlap:
            assert [plan_costs.step_seconds(plan) for plan in plans] == pytest.approx(steps, rel=1e-9)
            assert evaluate(plans).tolist() == pytest.approx(steps, rel=1e-9)
        return steps[1] - steps[0]

    compute = each(1, False)
    assert each(2, False) == pytest.approx(compute + values * (2 + 2 + 4) / 2 / 1e9, rel=1e-9)
    assert each(2, True) < each(2, False)


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
def test_a_backward_of_large_layers_gathers_once_more_to_repeat_their_forward(schedule: str, monkeypatch) -> None:
    """Each microbatch takes as much longer as a gather of the stage, where layers are larger than what is kept between uses."""
    values = 2 * (12 * 96**2 + 13 * 96) + 2 * 768 * 96 + 2 * 96
    machines = builders.fleet(builders.cluster(nodes=2, nics=(builders.nic(bandwidth=1e9),)))
    facts = {"zero_stage": 3, "schedule": schedule, "overlap_grad_reduce": False, "recompute": "full"}

    def each() -> float:
        plans = [builders.plan(machines, dp=2, microbatches=many, **facts) for many in (8, 9)]
        steps = [simulate(plan).step_s for plan in plans]
        assert [plan_costs.step_seconds(plan) for plan in plans] == pytest.approx(steps, rel=1e-9)
        assert evaluate(plans).tolist() == pytest.approx(steps, rel=1e-9)
        return steps[1] - steps[0]

    small = each()
    monkeypatch.setattr("sim.kernels.recomputation.REUSE", 12 * 96**2)
    assert each() - small == pytest.approx(2 * values / 2 / 1e9, rel=1e-9)


@pytest.mark.parametrize("zero_stage", [0, 1])
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize(("nics", "is_exact"), [(2, False), (3, True)])
def test_sums_of_a_tied_embedding_begin_one_after_the_other(nics: int, is_exact: bool, overlap: bool, zero_stage: int) -> None:
    """Three tp ranks reduce over two NICs, so that the third one is done first, and has summed its part of the embedding over
    the Ethernet NIC that all share before the others begin; over three NICs all begin at once."""
    ethernet, roce = builders.nic("ethernet", 1e9), builders.nic("roce", 1e8, count=nics)
    first, last = builders.cluster("a", 1, 6, (ethernet,)), builders.cluster("b", 2, 3, (roce, ethernet))
    machines = builders.fleet(first, last, trunks=(Trunk(("a", "b"), "ethernet", 1e9, 0.0),))
    shape = {"tied_embeddings": True, "vocab": 76800}
    gradients = {"zero_stage": zero_stage, "overlap_grad_reduce": overlap, "overlap_param_gather": overlap}
    plan = builders.plan(machines, tp=3, pp=2, dp=2, shape=shape, **gradients)
    costs = plan_costs.PlanCosts(plan)
    assert [costs.collectives_of(pp_rank).reduce_together for pp_rank in (0, 1)] == [True, is_exact]
    step, one = simulate(plan).step_s, 76800 * 96 / 3 * 4 / 1e9  # a third of the table, two halves in each direction
    ahead = zero_stage and overlap  # else the third rank may have less to gather after its sum
    assert plan_costs.tied_seconds(costs) == pytest.approx(6 * one if is_exact else one if ahead else 0.0)
    for seconds in (plan_costs.step_seconds(plan), float(evaluate([plan])[0])):
        assert 0.75 * step < seconds <= step * (1 + 1e-9)
        assert (seconds == pytest.approx(step, rel=1e-9)) == is_exact


def test_the_gather_of_a_message_overlaps_that_of_weights() -> None:
    """Links with latency alone: the gather of a message takes 0.1 s, during the gather of weights of 3 s."""
    inside, chip = wire(bandwidth=FREE, latency=0.1), builders.device(host_bandwidth=FREE)

    def side(name: str, latency: float) -> Any:
        return builders.cluster(name, 4, 2, (builders.nic(bandwidth=FREE, latency=latency),), chip, inside)

    machines = builders.fleet(side("a", 0.0), side("b", 1.0), trunks=(Trunk(("a", "b"), "infiniband", FREE, 0.0),))
    plan = builders.plan(machines, tp=2, pp=2, dp=4)
    assert plan_costs.step_seconds(plan) == pytest.approx(simulate(plan).step_s, rel=1e-9)


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
@pytest.mark.parametrize("tp", [1, 2, 8])
@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_the_step_of_one_replica_of_one_stage_equals_the_closed_form(
    schedule: str, tp: int, recompute: str, sequence_parallel: bool
) -> None:
    machines = builders.fleet(builders.cluster(devices=8, intra_node=wire(latency=1e-6, overhead=8e-6, efficiency=0.7)))
    plan = builders.plan(
        machines, tp=tp, microbatches=5, layers=(3,), recompute=recompute, sequence_parallel=sequence_parallel and tp > 1,
        schedule=schedule,
    )  # fmt: skip
    assert simulate(plan).step_s == pytest.approx(plan_costs.step_seconds(plan), rel=1e-9)


@pytest.mark.parametrize("zero_stage", [0, 1])
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("hidden", [96, 3072])
@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
def test_the_step_of_data_parallel_replicas_equals_the_closed_form(
    schedule: str, zero_stage: int, overlap: bool, hidden: int
) -> None:
    machines = builders.fleet(builders.cluster(nodes=4, nics=(builders.nic(latency=5e-6, overhead=8e-6),)))
    plan = builders.plan(
        machines, dp=4, microbatches=3, layers=(6,), shape={"hidden": hidden}, zero_stage=zero_stage,
        overlap_grad_reduce=overlap, overlap_param_gather=overlap, schedule=schedule,
    )  # fmt: skip
    assert simulate(plan).step_s == pytest.approx(plan_costs.step_seconds(plan), rel=1e-9)


@pytest.mark.parametrize(("m", "p"), [(1, 4), (4, 2), (8, 4), (16, 8)])
@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
def test_the_step_of_equal_stages_on_free_wires_equals_the_closed_form(schedule: str, m: int, p: int, free_ends: None) -> None:
    plan = builders.plan(free_wires(), pp=p, microbatches=m, schedule=schedule)
    assert simulate(plan).step_s == pytest.approx(plan_costs.step_seconds(plan), rel=1e-9)


@pytest.mark.parametrize(("pp", "layers"), [(1, (2, 2)), (2, (1, 1, 1, 1)), (2, (1, 1, 1, 3))])
def test_the_closed_form_leaves_out_reductions_that_overlap_virtual_stages(pp: int, layers: tuple[int, ...]) -> None:
    """Slow NICs: gradients of some virtual stages are reduced while others compute."""
    machines = builders.fleet(builders.cluster(nodes=4, nics=(builders.nic(bandwidth=1e9),), intra_node=wire(bandwidth=4e9)))
    plan = builders.plan(
        machines, pp=pp, dp=2, vpp=2, microbatches=4, layers=layers, schedule="interleaved", shape={"hidden": 960}
    )
    assert plan_costs.step_seconds(plan) <= simulate(plan).step_s


def test_the_closed_form_takes_groups_with_different_rounds() -> None:
    """The first tensor-parallel ranks are on one node, the second on two: only the second group has a ring across nodes."""
    on = [(0, replica) if rank == 0 else (1 + replica // 2, replica % 2) for replica in range(4) for rank in range(2)]
    placement = tuple(Device("c", node, index) for node, index in on)
    machines = builders.fleet(builders.cluster(nodes=3, devices=4))
    plan = builders.plan(machines, tp=2, dp=4, zero_stage=0, placement=placement, collective={"dp": "hierarchical"})
    assert plan_costs.step_seconds(plan) <= simulate(plan).step_s * (1 + 1e-9)


def joined(schedule: str, zero_stage: int):
    """A plan of two stages and two replicas, over slow NICs and a trunk of 50 ms latency."""
    spec, nics = builders.device(speed=1e12, memory_bandwidth=1e11), (builders.nic("ethernet", 1e7),)
    clusters = [builders.cluster(name, 2, 1, nics, spec) for name in "ab"]
    machines = builders.fleet(*clusters, trunks=(Trunk(("a", "b"), "ethernet", 1e9, 0.05),))
    return builders.plan(machines, pp=2, dp=2, microbatches=3, layers=(1, 5), schedule=schedule, zero_stage=zero_stage)


@pytest.mark.parametrize(
    ("schedule", "zero_stage"),
    [
        ("1f1b", 1),
        ("1f1b", 2),
        ("1f1b", 3),
        ("zb-h1", 2),
        ("zb-h1", 3),
        ("zb-h2", 3),
    ],
)
def test_the_closed_form_is_never_longer_where_gradients_queue_for_the_network(schedule, zero_stage):
    plan = joined(schedule, zero_stage)
    assert plan_costs.step_seconds(plan) <= simulate(plan).step_s * (1 + 1e-9)


def test_replicas_on_clusters_of_one_device_type_have_their_own_interconnects() -> None:
    """The first replica has the slow interconnect in its first stage, the second one in its last stage."""
    spec = builders.device(speed=1e12)
    slow, fast = (wire(name, bandwidth=rate) for name, rate in (("slow", 1e8), ("fast", 1e11)))
    nics = (builders.nic("ethernet", 1e10),)
    clusters = [builders.cluster(name, 2, 2, nics, spec, inside) for name, inside in (("a", slow), ("b", fast))]
    machines = builders.fleet(*clusters, trunks=(Trunk(("a", "b"), "ethernet", 1e10, 0.0),))
    a, b = ([Device(name, node, index) for node in (0, 1) for index in (0, 1)] for name in "ab")
    placement = (*a[:2], *b[:2], *b[2:], *a[2:])
    plan = builders.plan(machines, tp=2, pp=2, dp=2, placement=placement)
    assert len(plan_costs.replica_classes(plan)) == 2
    engine = simulate(plan).step_s
    assert plan_costs.step_seconds(plan) <= engine * (1 + 1e-9)
    assert evaluate([plan])[0] == pytest.approx(engine, rel=0.05)
