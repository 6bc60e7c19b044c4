"""The evaluator against the engine: equal where no flow waits for another, never slower where flows share links."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sim.analytic import evaluator, plan_costs
from sim.analytic.candidates import STAGE
from sim.analytic.evaluator import Table, evaluate
from sim.analytic.plan_costs import PlanCosts
from sim.analytic.recurrence import steps
from sim.engine.engine import simulate
from sim.engine.symmetry import fold
from sim.errors import NotModelled
from sim.hardware.cluster import Trunk
from sim.plan.plan import Plan
from tests import builders
from tests.builders import any_plan, cluster, device, fleet, nic, wire
from tests.sim.analytic.candidate_steps import CASES
from tests.sim.ideal_machines import FREE, idle_fleet


def recomputations(stages: int) -> st.SearchStrategy[dict[str, Any]]:
    """None, all layers, so many of each stage, or some modules of each layer."""
    counts = st.one_of(st.just(()), *(st.tuples(*[st.integers(0, 5)] * many) for many in (1, stages)))
    full = st.builds(lambda counts: {"recompute": "full", "recompute_layers": counts}, counts)
    some = {"recompute": "selective", "recompute_modules": ("mlp", "layernorm")}
    return st.one_of(st.just({"recompute": "none"}), full, st.just(some))


@st.composite
def plans_without_contention(draw: st.DrawFn) -> Plan:
    """Plans of equal replicas in which no flow waits for another.

    Each pipeline rank has its own cluster, and messages take time by latency and overhead alone, so no bandwidth is shared.
    """
    schedule, vpp = draw(st.sampled_from(CASES))
    tp, pp, dp = draw(st.sampled_from([1, 2])), draw(st.integers(1, 5)), draw(st.sampled_from([1, 2]))
    unit = pp if schedule == "interleaved" else 1
    microbatches = unit * draw(st.integers(1, max(1, draw(st.sampled_from([10, 90])) // unit)))
    slow = draw(st.sampled_from([0.0, 0.0, 0.25]))
    machines = idle_fleet(draw, (tp, pp, dp), slow)
    layers = tuple(draw(st.lists(st.integers(1, 4), min_size=pp * vpp, max_size=pp * vpp)))
    shape = {"hidden": draw(st.sampled_from([96, 3072])), "tied_embeddings": draw(st.booleans())}
    behind = draw(st.integers(0, pp - 2)) if pp > 1 and vpp == 1 else 0  # stages after the head
    layers = (*layers[: len(layers) - behind], *(0,) * behind)
    most, head = 2 if behind else 3, pp - 1 - behind if shape["tied_embeddings"] else None
    unlike = draw(builders.unlike_options(pp, most, head)) if vpp == 1 and draw(st.booleans()) else {}
    again = draw(builders.unlike_recomputation(pp)) if draw(st.booleans()) else {}
    switches = {"zero_stage": draw(st.integers(0, most))} | unlike | draw(recomputations(pp * vpp)) | again
    return builders.plan(
        machines, tp, pp, dp, vpp, microbatches, layers, shape=shape, schedule=schedule, head=len(layers) - 1 - behind,
        sequence_parallel=tp > 1 and draw(st.booleans()), overlap_grad_reduce=draw(st.booleans()),
        overlap_param_gather=draw(st.booleans()), **switches,
    )  # fmt: skip


@given(data=st.data())
def test_without_contention_the_step_is_that_of_the_engine(data: st.DataObject) -> None:
    plan = data.draw(plans_without_contention())
    assert evaluate([plan]) == pytest.approx([simulate(plan).step_s], rel=1e-9)


@pytest.mark.parametrize("zero_stage", [0, 1, 2, 3])
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("interference", [0.0, 0.3])
def test_buckets_over_nics_take_the_time_of_the_engine(zero_stage: int, overlap: bool, interference: float) -> None:
    card = nic(latency=5e-6, overhead=8e-6, interference=interference)
    plan = builders.plan(
        fleet(cluster(nodes=4, nics=(card,))), dp=4, microbatches=3, layers=(6,), shape={"hidden": 3072},
        zero_stage=zero_stage, overlap_grad_reduce=overlap, overlap_param_gather=overlap,
    )  # fmt: skip
    assert evaluate([plan]) == pytest.approx([simulate(plan).step_s], rel=1e-9)


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
@pytest.mark.parametrize("zero_stage", [2, 3])
@pytest.mark.parametrize("speed", [1e12, 3e13, 1e15])
def test_gathers_and_reductions_of_different_interference_take_the_time_of_the_engine(
    schedule: str, zero_stage: int, speed: float
) -> None:
    """Weights are gathered inside nodes of two; gradients are also reduced between nodes."""
    inside, card = wire(bandwidth=3e10, interference=0.6), nic(bandwidth=1e10, interference=0.2)
    machines = fleet(cluster("c", 2, 2, (card,), device(speed=speed), inside))
    plan = builders.plan(
        machines, dp=4, microbatches=50, layers=(7,), shape={"hidden": 3072}, schedule=schedule, zero_stage=zero_stage,
        zero_shard_size=2,
    )  # fmt: skip
    assert evaluate([plan]) == pytest.approx([simulate(plan).step_s], rel=1e-9)


@pytest.mark.parametrize("cp", [2, 4])
@pytest.mark.parametrize("bandwidth", [1e8, 1e10])
def test_ring_exchanges_of_keys_and_values_take_the_time_of_the_engine(cp: int, bandwidth: float) -> None:
    machines = fleet(cluster(nodes=cp, nics=(nic(bandwidth=bandwidth),)))
    plan = builders.plan(machines, cp=cp, microbatches=3, overlap_grad_reduce=False, overlap_param_gather=False, seq_len=512)
    assert evaluate([plan]) == pytest.approx([simulate(plan).step_s], rel=1e-9)


@pytest.mark.parametrize(
    ("zero_stage", "speed", "bandwidth", "inside", "hidden"),
    [(1, 1e12, 1e10, 1e9, True), (1, 1e12, 1e10, 1e12, True), (0, 1e13, 1e11, 1e10, True), (0, 1e13, 1e11, 1e9, False)],
)
def test_compute_beside_hidden_exchanges_is_slowed_by_gradients(
    zero_stage: int, speed: float, bandwidth: float, inside: float, hidden: bool
) -> None:
    """Where products hide all tensor-parallel exchanges the step is the engine's, and else below it."""
    card = nic(bandwidth=bandwidth, count=2, interference=0.25)
    machines = fleet(cluster("c", 2, 2, (card,), device(speed=speed), wire(bandwidth=inside)))
    plan = builders.plan(
        machines, tp=2, dp=2, microbatches=3, layers=(6,), shape={"hidden": 3072}, tp_overlap=True, sequence_parallel=True,
        zero_stage=zero_stage,
    )  # fmt: skip
    step, evaluated = simulate(plan).step_s, float(evaluate([plan])[0])
    assert evaluated == pytest.approx(step, rel=1e-9) if hidden else 0.99 * step < evaluated < step


@pytest.mark.parametrize("zero_stage", [0, 1, 2, 3])
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("layers", [(4,), (3, 1)])
def test_gradients_of_experts_and_dense_weights_take_the_time_of_the_engine(
    zero_stage: int, overlap: bool, layers: tuple[int, ...]
) -> None:
    """Two replicas of every expert and four of dense weights; NICs have latency but unlimited bandwidth."""
    card, chip = nic(bandwidth=FREE, latency=2e-3), device(host_bandwidth=FREE)
    machines = fleet(cluster(nodes=4 * len(layers), nics=(card,), spec=chip))
    plan = builders.plan(
        machines, dp=4, ep=2, pp=len(layers), microbatches=3, layers=layers,
        shape={"experts": 4, "experts_per_token": 2}, zero_stage=zero_stage,
        overlap_grad_reduce=overlap, overlap_param_gather=overlap,
    )  # fmt: skip
    assert evaluate([plan]) == pytest.approx([simulate(plan).step_s], rel=1e-9)


def modelled(plan: Plan) -> bool:
    """Whether the evaluator models a plan."""
    try:
        evaluator.check(plan.config)
    except NotModelled:
        return False
    return True


@given(data=st.data())
def test_equal_replicas_are_never_slower_than_in_the_engine(data: st.DataObject) -> None:
    plan = data.draw(any_plan(ranks=32))
    assume(modelled(plan) and len(fold(plan).representatives) == plan.config.pp)
    assert evaluate([plan])[0] <= simulate(plan).step_s * (1 + 1e-9)


@given(data=st.data())
def test_the_step_is_never_below_the_closed_form(data: st.DataObject) -> None:
    """Except for ZeRO stages that reduce every microbatch, where the closed form may be above the engine."""
    plan = data.draw(any_plan(ranks=32))
    assume(modelled(plan) and not plan.config.reduces_each_microbatch)
    assert evaluate([plan])[0] >= plan_costs.step_seconds(plan) * (1 - 1e-9)


@given(data=st.data())
def test_many_plans_at_once_have_the_steps_of_single_ones(data: st.DataObject) -> None:
    drawn = [plan for plan in data.draw(st.lists(any_plan(ranks=16), max_size=4)) if modelled(plan)]
    assert evaluate(drawn) == pytest.approx([evaluate([plan])[0] for plan in drawn], rel=1e-11)


@pytest.mark.parametrize(("schedule", "vpp"), [("1f1b", 1), ("zb-h1", 1), ("interleaved", 2)])
@pytest.mark.parametrize(("zero_stage", "overlap"), [(1, False), (1, True), (2, True), (3, True)])
def test_a_table_gives_the_steps_of_the_plans_of_its_splits(schedule: str, vpp: int, zero_stage: int, overlap: bool) -> None:
    """Two device types, one for the first pipeline rank and one for the other two; eight splits of twelve layers."""
    inside = wire(latency=1e-6, interference=0.1)
    cards = (nic(latency=2e-5, interference=0.2),)
    slow = cluster("slow", 2, 2, cards, device("slow", 1e13), inside)
    fast = cluster("fast", 4, 2, cards, device("fast", 3e13), inside)
    machines = fleet(slow, fast, trunks=(Trunk(("slow", "fast"), "infiniband", 1e9, 1e-4),))
    rng = np.random.default_rng(5)
    layers = 1 + rng.multinomial(12 - 3 * vpp, np.full(3 * vpp, 1 / (3 * vpp)), 8)
    plans = [
        builders.plan(
            machines, 2, 3, 2, vpp, 6, tuple(int(n) for n in row), schedule=schedule, zero_stage=zero_stage,
            overlap_grad_reduce=overlap, overlap_param_gather=overlap, shape={"hidden": 1536, "tied_embeddings": True},
        )
        for row in layers
    ]  # fmt: skip
    costs, both = PlanCosts(plans[0]), (0, 1)
    messages = np.array([[0.0, costs.message(0, 1, both)], [costs.message(1, 0, both), costs.message(1, 2, both)]])
    tied = np.full((2, 2), plan_costs.tied_seconds(costs))
    table = Table([costs.at(0, both, (0,)), costs.at(1, both, (1,))], messages, tied)
    candidates = table.candidates(np.tile([0, 1, 1], (8, 1)), layers)
    assert steps(candidates) == pytest.approx(evaluate(plans), rel=1e-12)


@pytest.mark.parametrize(
    "facts",
    [
        {"schedule": "zb-h1", "recompute": "full"},
        {"tp": 2, "sequence_parallel": True, "tp_overlap": True},
        {"tp": 2, "recompute": "selective", "recompute_modules": ("mlp",)},
        {"cp": 2, "zero_stage": 0},
        {
            "dp": 4,
            "ep": 2,
            "shape": {"experts": 4, "experts_per_token": 2, "shared_ffn_hidden": 64},
            "overlap_shared_experts": True,
        },
    ],
)
def test_a_table_extends_the_costs_of_few_layers_to_many(facts: dict[str, Any]) -> None:
    """Stages of 1, 2, 7 and 6 layers; those of plans are computed layer by layer."""
    plan = builders.plan(
        fleet(cluster(nodes=16, devices=2)), **{"dp": 2, "pp": 4, "layers": (1, 2, 7, 6), "microbatches": 8} | facts
    )
    costs = PlanCosts(plan)
    stages = [costs.at(pp_rank, plan_costs.replica_classes(plan)[0], (pp_rank,)) for pp_rank in range(4)]
    candidates = Table(stages, np.zeros((4, 4))).candidates(np.arange(4)[None], np.array([plan.layers]))
    (same,) = evaluator.of_plan(plan)
    messages = STAGE.index("ahead")
    assert candidates.stages[:messages] == pytest.approx(same.stages[:messages], rel=1e-12)
    assert candidates.pp_ranks == pytest.approx(same.pp_ranks, rel=1e-12)


def test_a_table_has_stages_with_every_number_of_recomputed_layers() -> None:
    """Of stages of 3 layers each, and of 2 and 1 in their virtual stages."""
    machines = fleet(cluster(nodes=2, devices=2))
    for vpp, layers, schedule in ((1, (3, 3), "1f1b"), (2, (2, 1, 1, 2), "interleaved")):
        counts = [tuple(row) for row in np.ndindex(*(size + 1 for size in layers))]
        plans = [
            builders.plan(
                machines, 2, 2, 1, vpp, 4, layers, schedule=schedule,
                recompute="full" if any(row) else "none", recompute_layers=row if any(row) else (),
            )
            for row in counts
        ]  # fmt: skip
        costs = PlanCosts(plans[0])
        message = costs.message(0, 1, (0,))
        table = Table(
            [costs.at(0, (0,), (0,)), costs.at(1, (0,), (1,))], np.array([[0.0, message], [message, 0.0]]), recomputes=True
        )
        candidates = table.candidates(np.tile([0, 1], (len(plans), 1)), np.tile(layers, (len(plans), 1)), np.array(counts))
        assert steps(candidates) == pytest.approx(evaluate(plans), rel=1e-12)
        assert len(set(steps(candidates))) > 4


@pytest.mark.parametrize("zero_stage", [1, 2, 3])
def test_a_candidate_that_stands_for_several_sizes_takes_no_longer_than_any(zero_stage: int) -> None:
    """2 to 4 layers on the first of two stages and 5 to 8 on the last, whose reductions slow compute."""
    plan = builders.plan(
        fleet(cluster(nodes=4)), dp=2, pp=2, layers=(4, 8), microbatches=6, zero_stage=zero_stage, shape={"hidden": 1536}
    )
    costs = PlanCosts(plan)
    stages = [costs.at(pp_rank, plan_costs.replica_classes(plan)[0], (pp_rank,)) for pp_rank in range(2)]
    message = costs.message(0, 1, (0,))
    table, classes = Table(stages, np.array([[0.0, message], [message, 0.0]])), np.array([[0, 1]])
    every = np.array([(a, b) for a in (2, 3, 4) for b in (5, 6, 7, 8)])
    each = steps(table.candidates(np.tile(classes, (len(every), 1)), every))
    (together,) = steps(table.candidates(classes, np.array([[2, 5]]), most=np.array([[4, 8]])))
    assert 0.9 * each.min() < together <= each.min()
    (same,) = steps(table.candidates(classes, np.array([[4, 8]]), most=np.array([[4, 8]])).without_gathers())
    assert same <= each.max()


def test_a_plan_that_is_not_modelled_is_refused() -> None:
    machines = fleet(cluster(nodes=4))
    experts = {"experts": 4, "experts_per_token": 2}
    with pytest.raises(NotModelled, match=r"zero_stage 3 with ep 2 and vpp 2: .* alternate on two streams of a rank"):
        evaluate([builders.plan(machines, dp=4, ep=2, vpp=2, schedule="interleaved", shape=experts, zero_stage=3)])
    uneven = builders.plan(machines, dp=2, microbatches=(1, 2))
    with pytest.raises(NotModelled, match="a table needs replicas with the same number of microbatches"):
        Table([PlanCosts(uneven).at(0, (0,), (0,))], np.zeros((1, 1)))


def test_the_slowest_replica_sets_the_step() -> None:
    plan = builders.plan(fleet(cluster(nodes=2)), dp=2, microbatches=(1, 7), zero_stage=0)
    alone = replace(plan.config, num_microbatches=(7, 7))
    workload = replace(plan.workload, global_batch_size=14)
    assert evaluate([plan]) == pytest.approx(evaluate([replace(plan, config=alone, workload=workload)]), rel=1e-12)
