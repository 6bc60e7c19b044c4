"""A stack scales what was measured in isolation; another stack on a plan is the plan of a topology read with that stack."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from holmes_sim import cases
from sim.analytic.plan_costs import step_seconds
from sim.engine.engine import simulate
from sim.formats import catalog
from sim.hardware.cluster import Device
from sim.hardware.device_spec import AttentionRates, GemmCurve
from sim.hardware.stack import DEFAULT, FACTS, NUMBERS, SHARES, Stack, applied, overlaps_tensor_parallel, software_facts
from sim.network.routes import collective_route
from sim.plan.under_stack import with_stack
from tests import builders
from tests.builders import cluster, fleet, wire

BLOOM = Path(__file__).parents[3] / "validation" / "bloom.yaml"


def test_a_device_reaches_a_share_of_each_isolated_rate() -> None:
    isolated = builders.device(gemm=GemmCurve(1e-6, 0.8, 0.6), attention=AttentionRates(0.4, 0.3))
    found = Stack(gemm=0.5, attention=0.25, elementwise=0.75, launch=1e-3, step=2e-3, blocking=True).device(isolated)
    assert (found.gemm.launch, found.gemm.compute_efficiency, found.gemm.memory_efficiency) == (1e-6, 0.4, 0.3)
    assert found.attention == AttentionRates(0.1, 0.075)
    assert (found.elementwise_efficiency, found.launch, found.step, found.blocking) == (0.75, 1e-3, 2e-3, True)


def test_a_link_reaches_a_share_of_its_rate_and_never_more_than_the_wire() -> None:
    link = wire(efficiency=0.8)
    assert set(dict(Stack(communication=0.5).link(link).efficiency).values()) == {0.4}
    assert set(dict(Stack(communication=1.5).link(link).efficiency).values()) == {1.0}


def test_the_catalogue_is_read_with_the_default_stack() -> None:
    facts = catalog.device_facts("a100-sxm4-80gb")
    assert catalog.device("a100-sxm4-80gb") == DEFAULT.device(facts.isolated())
    assert catalog.device("a100-sxm4-80gb").gemm.compute_efficiency == pytest.approx(0.793 * DEFAULT.gemm)


def test_products_of_a_long_run_reach_the_sustained_share() -> None:
    """The power limit lowers the clock, so products take longer and their bytes do not."""
    facts = catalog.device_facts("gb200")
    assert facts.gemm.sustained == 0.91
    gemm, short = catalog.device("gb200").gemm, facts.gemm.model_copy(update={"sustained": 1.0}).curve()
    assert gemm.reached == pytest.approx(short.reached * 0.91 * DEFAULT.gemm)
    assert gemm.memory_efficiency == pytest.approx(short.memory_efficiency * DEFAULT.gemm)


def test_products_of_older_libraries_reach_a_share_on_hopper() -> None:
    """0.89 of the rate of a long run on H100, all of it with `newest_products`; A100 has no such share."""
    hopper, ampere = (catalog.device_facts(name).isolated() for name in ("h100-sxm5-80gb", "a100-sxm4-80gb"))
    assert Stack().device(hopper).gemm.reached == pytest.approx(0.753 * 0.9 * 0.89)
    assert Stack(newest_products=True).device(hopper).gemm.reached == pytest.approx(0.753 * 0.9)
    assert Stack(newest_products=True).device(ampere) == Stack().device(ampere)


def test_another_stack_takes_the_place_of_the_default_one() -> None:
    isolated = catalog.device_facts("a100-sxm4-80gb").isolated()
    other = Stack(gemm=0.5, attention=0.6, elementwise=0.7, communication=0.8, launch=2e-3, step=3e-3)
    plans = [builders.plan(fleet(cluster(spec=stack.device(isolated)))) for stack in (DEFAULT, other)]
    ((here,), (there,)) = (applied(other, plans[0].fleet).clusters, plans[1].fleet.clusters)
    assert here.node.device.gemm.compute_efficiency == pytest.approx(there.node.device.gemm.compute_efficiency)
    assert here.node.device.elementwise_efficiency == pytest.approx(there.node.device.elementwise_efficiency)
    assert (here.node.device.launch, here.node.device.step) == (2e-3, 3e-3)
    assert applied(DEFAULT, plans[0].fleet) is plans[0].fleet


@pytest.mark.parametrize("number", NUMBERS)
def test_a_worse_number_is_never_faster(number: str) -> None:
    """Less of a rate, more time and more bytes."""
    device = catalog.device("a100-sxm4-80gb")
    plan = builders.plan(
        fleet(cluster(nodes=2, devices=2, spec=device, intra_node=catalog.link("nvlink3"))), tp=2, dp=2, seq_len=1024,
        shape={"hidden": 3072},
    )  # fmt: skip
    worse = getattr(DEFAULT, number) / 1.2 if number in SHARES else getattr(DEFAULT, number) * 2 + 1e-3
    assert step_seconds(with_stack(replace(DEFAULT, **{number: worse}), plan)) >= step_seconds(plan)


def test_steps_between_nodes_are_delayed_and_queued_gradients_are_not() -> None:
    """Two nodes of two devices. A piece passes each of the four edges of a ring 6/4 times in an all_reduce; two of them lead
    over the network, so it is 3 steps of 3 ms late. The gradients of dp 4 wait behind one another and are not delayed."""
    machines = fleet(cluster(nodes=2, devices=2, nics=(builders.nic(),)))
    hosts = tuple(tuple(Device("c", node, index) for index in range(2)) for node in range(2))
    base, late = replace(DEFAULT, launch=0.0, step=0.0), replace(DEFAULT, launch=0.0, step=0.0, network_delay=3e-3)
    before, after = (
        collective_route(applied(stack, machines), hosts, "infiniband", "ring", "all_reduce") for stack in (base, late)
    )
    assert after.latency - before.latency == pytest.approx(3 * 3e-3)
    gradients = builders.plan(machines, dp=4)
    assert simulate(with_stack(late, gradients)).step_s == simulate(with_stack(base, gradients)).step_s


@pytest.mark.parametrize(
    ("link", "tp", "overlaps"), [("nvlink4", 8, True), ("hccs", 8, True), ("nvlink4", 16, False), ("pcie5", 8, False)]
)
def test_tensor_parallelism_overlaps_inside_nodes(link: str, tp: int, overlaps: bool) -> None:
    machines = fleet(cluster(nodes=2, devices=8, intra_node=catalog.link(link)))
    assert overlaps_tensor_parallel(replace(DEFAULT, tp_overlap=True), machines, tp) is overlaps
    assert not overlaps_tensor_parallel(DEFAULT, machines, tp)


def test_sums_of_input_gradients_overlap_over_any_link() -> None:
    """NCCL needs no user buffers, so the fact does not depend on links and nodes."""
    machines = fleet(cluster(nodes=2, devices=8, intra_node=catalog.link("pcie5")))
    facts = software_facts(replace(DEFAULT, tp_overlap=True, tp_backward_overlap=True), machines, 16)
    assert (facts["tp_overlap"], facts["tp_backward_overlap"]) == (False, True)


def test_the_newest_attention_replaces_the_rates_where_a_device_has_one() -> None:
    newer = builders.device(attention=AttentionRates(0.4, 0.3), newest_attention=AttentionRates(0.6, 0.5, 1000.0))
    newest = Stack(attention=0.5, attention_newest=0.8, newest_attention=True)
    assert Stack(attention=0.5).device(newer).attention_of("bf16") == AttentionRates(0.2, 0.15)
    assert newest.device(newer).attention_of("bf16") == AttentionRates(0.48, 0.4, 1000.0)
    older = replace(newer, newest_attention=None)
    assert newest.device(older).attention_of("bf16") == AttentionRates(0.2, 0.15)


def test_cudnn_9_19_replaces_the_newest_rates_where_a_device_has_its_own() -> None:
    newer = builders.device(
        attention=AttentionRates(0.4, 0.3),
        newest_attention=AttentionRates(0.6, 0.5),
        other_attention=(("cudnn_9_19", AttentionRates(0.8, 0.7)),),
    )
    later = Stack(attention=0.5, attention_newest=0.5, newest_attention=True, cudnn_9_19=True)
    assert later.device(newer).attention_of("bf16") == AttentionRates(0.4, 0.35)
    assert replace(later, newest_attention=False).device(newer).attention_of("bf16") == AttentionRates(0.2, 0.15)
    assert later.device(replace(newer, other_attention=())).attention_of("bf16") == AttentionRates(0.3, 0.25)
    machines = fleet(cluster(spec=DEFAULT.device(newer)))  # at the rates of the default stack
    ran = applied(replace(DEFAULT, cudnn_9_19=True), machines).clusters[0].node.device
    assert ran.attention_of("bf16").forward == pytest.approx(0.8 * DEFAULT.attention_newest)


def test_the_newest_attention_runs_at_the_clock_that_the_products_of_its_step_leave() -> None:
    """Of a short loop's rate on H100: 0.9 beside products in bf16, 0.87 beside those in fp8, as measured of products."""
    facts = catalog.device_facts("h100-sxm5-80gb")
    assert facts.attention.newest is not None
    most = facts.attention.newest.forward_efficiency
    hopper = Stack(newest_attention=True).device(facts.isolated())
    found = [hopper.attention_of(precision).forward / most for precision in ("bf16", "fp8")]
    assert found == pytest.approx([0.9, 0.87])
    assert Stack().device(facts.isolated()).attention_of("bf16") == facts.attention.rates()


def test_a_stack_without_the_newest_attention_takes_it_from_a_fleet_that_has_it() -> None:
    newer = builders.device(attention=AttentionRates(0.4, 0.3), newest_attention=AttentionRates(0.6, 0.5, 1000.0))
    machines = fleet(cluster(spec=DEFAULT.device(newer)))
    ran = applied(replace(DEFAULT, newest_attention=False), machines).clusters[0].node.device
    assert machines.clusters[0].node.device.attention_of("bf16").half_length == 1000.0
    assert ran.attention_of("bf16") == AttentionRates(0.4 * DEFAULT.attention, 0.3 * DEFAULT.attention)


@pytest.mark.parametrize(("nodes", "seconds"), [(1, 0.0), (2, 1e-3)])
def test_launches_grow_with_the_ranks_only_where_a_pipeline_may_cross_nodes(nodes: int, seconds: float) -> None:
    machines = fleet(cluster(nodes=nodes, devices=2))
    (found,) = applied(replace(DEFAULT, launch_per_rank=1e-3), machines).clusters
    assert found.node.device.launch_per_rank == seconds


def test_software_that_all_reduces_under_zero_1_moves_a_gradient_twice() -> None:
    """2 (n - 1) / n of the gradients against (n - 1) / n: on ideal devices the rest of the step stays as it is."""
    machines = fleet(cluster(nodes=4, devices=1, nics=(builders.nic(bandwidth=1e9),)))
    plan = builders.plan(machines, dp=4, shape={"hidden": 960}, overlap_grad_reduce=False, overlap_param_gather=False)
    whole = with_stack(replace(DEFAULT, launch=0.0, step=0.0, all_reduces=True), plan)
    gradients = 4 * plan.workload.model.parameters
    assert simulate(whole).step_s - simulate(plan).step_s == pytest.approx(3 / 4 * gradients / 1e9, rel=1e-6)
    assert (plan.config.reduction, whole.config.reduction) == ("reduce_scatter", "all_reduce")
    assert replace(plan.config, zero_stage=0).reduction == "all_reduce"
    assert replace(whole.config, zero_stage=2).reduction == "reduce_scatter"


def test_blocking_launches_cost_as_much_as_measured_on_jean_zay() -> None:
    """200B on 80 A100, 512 sequences a step: 97.20 TFLOP/s without CUDA_LAUNCH_BLOCKING=1, 91.04 with it (bigscience-context/
    bigscience, train/tr11-176B-ml/chronicles-prequel.md). The launch is the default stack's; no number was fitted to these."""
    (plan,) = (case.plan for case in cases.load(BLOOM) if case.id == "bloom-80l-14400h-96a-g80-tp8pp10-mb1-gb2048")
    assert plan is not None
    smaller = replace(plan.workload, global_batch_size=512)
    plan = replace(plan, workload=smaller, config=replace(plan.config, num_microbatches=(512,)))
    slower = step_seconds(with_stack(replace(DEFAULT, blocking=True), plan)) / step_seconds(plan)
    assert slower == pytest.approx(97.20 / 91.04, abs=0.005)


@pytest.mark.parametrize("name", catalog.names("stacks"))
def test_a_shipped_stack_fits_four_numbers_at_most_and_names_its_cases(name: str) -> None:
    facts = catalog.stack_facts(name)
    assert facts.name == name
    assert len(facts.fitted.model_fields_set) <= 4
    assert bool(facts.cases) == bool(facts.fitted.model_fields_set) == (facts.error is not None)
    sourced = {*FACTS, "passes", "keeps", "workspace", "fragmentation", "launches", "refuses", "usual"}
    assert set(facts.sources) <= sourced and (facts.cases or facts.sources)
    assert not facts.fits or set(facts.fits) == facts.fitted.model_fields_set
    for axis in {one.axis for one in facts.held_out}:
        assert sorted(case for one in facts.held_out for case in one.cases if one.axis == axis) == sorted(facts.cases)
    assert all(one.fitted.model_fields_set == facts.fitted.model_fields_set for one in facts.held_out)
