"""Collectives of tensor parallelism beside products: what travels, what hides it, and the step in evaluator and engine."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.analytic import plan_costs
from sim.analytic.evaluator import evaluate
from sim.engine.engine import simulate
from sim.engine.symmetry import unfolded
from sim.hardware.topology import Topology
from sim.kernels import beside, lowering, payloads
from sim.kernels.compute import layer_seconds, rank_kernels
from sim.kernels.formulas import forward_seconds, input_gradient_seconds, weight_gradient_seconds
from sim.kernels.tensor_overlap import applies
from sim.plan.plan import Plan
from sim.plan.program import BESIDE, TENSOR, text
from tests.sim.context_and_experts import nodes

SHAPE = {"hidden": 512, "heads": 8, "kv_heads": 8, "ffn_hidden": 2048}
NARROW_PEAKS = (("fp8", 2e14), ("mxfp8", 2e14), ("nvfp4", 4e14))
QUIET = {"overlap_grad_reduce": False, "overlap_param_gather": False, "zero_stage": 0}


def overlapped(bandwidth: float = 1e9, overlaps: bool = True, **facts: object) -> Plan:
    """A plan with tp 4 inside nodes of four devices, whose collectives overlap products."""
    precision = str(facts.pop("precision", "bf16"))
    plan = nodes(bandwidth, **{"tp": 4, "sequence_parallel": True, "seq_len": 512, "shape": SHAPE} | facts)
    workload = replace(plan.workload, precision=precision)
    return replace(plan, workload=workload, topology=_with_fp8(plan), config=replace(plan.config, tp_overlap=overlaps))


def _with_fp8(plan: Plan) -> Topology:
    """The topology with devices that multiply in fp8 and less as well."""
    (cluster,) = plan.fleet.clusters
    device = replace(cluster.node.device, peak=(*cluster.node.device.peak, *NARROW_PEAKS))
    fleet = replace(plan.fleet, clusters=(replace(cluster, node=replace(cluster.node, device=device)),))
    return replace(plan.topology, fleet=fleet)


def exposed(plan: Plan) -> float:
    """Seconds of the closed form without those of the same plan on links that take no time."""
    free = replace(plan, topology=_with_fp8(nodes(1e30, 0.0)))
    return plan_costs.step_seconds(plan) - plan_costs.step_seconds(free)


def test_a_program_has_gathers_and_scatters_beside_products() -> None:
    program = text(lowering.program(overlapped(**QUIET), 0, 1))
    forward = "F0 gather attention in F0 gather mlp in F0 scatter attention out F0 scatter mlp out F0"
    backward = (
        "B0 gather attention out B0 gather mlp out B0 gather attention in again B0 gather mlp in again B0"
        " scatter attention in B0 scatter mlp in B0"
    )
    assert program == f"{forward} tp all_gather tp reduce_scatter {backward} tp all_gather tp reduce_scatter optimizer"


@pytest.mark.parametrize(("facts", "again"), [
    ({}, (0, 0)), ({"recompute": "full"}, (3, 3)), ({"recompute": "selective", "recompute_modules": ("mlp",)}, (0, 3)),
])  # fmt: skip
def test_all_collectives_of_three_layers_travel(facts: dict[str, object], again: tuple[int, int]) -> None:
    """In a forward, two gathers and three quarters of two scatters a layer are beside products; in a backward four gathers and
    two scatters, and what is recomputed as in a forward."""
    plan = overlapped(layers=(3,), **facts)

    def travelled(backward: bool) -> dict[str, float]:
        found = beside.exchanges(plan.workload, plan.config, 3, backward)
        assert {one.nbytes for one in found} == {512 * 512 * 2.0}
        return {f"{one.kind} {one.operation}": one.times for one in found}

    forward = {"gather attention in": 3, "gather mlp in": 3, "scatter attention out": 2.25, "scatter mlp out": 2.25}
    assert travelled(False) == {f"{name} F": times for name, times in forward.items()}
    own = dict.fromkeys(("gather attention out", "gather mlp out", "gather attention in again", "gather mlp in again"), 3)
    own |= dict.fromkeys(("scatter attention in", "scatter mlp in"), 3)
    repeated = {
        f"{name} R": times / 3 * again["mlp" in name] for name, times in forward.items() if again["mlp" in name]
    }  # fmt: skip
    assert travelled(True) == {f"{name} B": times for name, times in own.items()} | repeated


@pytest.mark.parametrize(("precision", "copies", "nbytes"), [("fp8", 1, 1.0), ("mxfp8", 2, 1 + 1 / 32), ("nvfp4", 2, 0.5625)])
def test_gradients_with_copies_along_rows_and_columns_are_gathered_twice(precision: str, copies: int, nbytes: float) -> None:
    """Of three layers: beside the gradient of the input, or all exposed without an overlap; inputs once in each direction."""
    plan = overlapped(layers=(3,), precision=precision)
    found = {one.operation: one for one in beside.exchanges(plan.workload, plan.config, 3, True)}
    for name in ("attention out B", "mlp out B"):
        assert (found[name].times, found[name].nbytes) == (3 * copies, 512 * 512 * nbytes)
    assert found["mlp in again B"].times == 3
    exposed = replace(plan.config, tp_overlap=False)
    for backward, rounds in ((False, 6), (True, 6 * copies)):
        gathers = payloads.tensor_collectives(plan.workload, exposed, 3, False, False, backward)[0]
        assert gathers == ("all_gather", 512 * 512 * nbytes, rounds)


@pytest.mark.parametrize(("precision", "current", "listed"), [
    ("fp8", True, ("all_reduce", 4, 6)), ("fp8", False, None), ("mxfp8", True, None), ("bf16", True, None),
])  # fmt: skip
def test_ranks_look_for_the_largest_value_of_what_they_gather(
    precision: str, current: bool, listed: tuple[str, int, int] | None
) -> None:
    """Of three layers with current scaling: two inputs a layer in a forward, two gradients in a backward."""
    plan = overlapped(layers=(3,), precision=precision)
    config = replace(plan.config, current_scaling=current)
    for backward in (False, True):
        found = payloads.tensor_collectives(plan.workload, config, 3, False, False, backward)
        assert [one for one in found if one[0] == "all_reduce"] == ([listed] if listed else [])


def test_products_hide_as_much_as_they_take() -> None:
    """A ring hides three of four parts at tp 4, a pipeline three of four, a bulk collective is beside the whole product."""
    plan = overlapped(layers=(3,), microbatches=1, **QUIET)
    device, options = plan.fleet.spec(plan.placement[0]), ("bf16", 2, "flash")
    kernels = {kernel.name: kernel for kernel in rank_kernels(plan.workload, plan.config)}
    windows = beside.windows(device, plan.workload, plan.config, 3)
    assert windows["attention in F"] == pytest.approx(3 * 0.75 * forward_seconds(kernels["qkv"], device, *options))
    assert windows["mlp out F"] == pytest.approx(3 * 0.75 * forward_seconds(kernels["down"], device, *options))
    assert windows["mlp out B"] == pytest.approx(3 * 0.75 * input_gradient_seconds(kernels["down"], device, *options))
    inputs = input_gradient_seconds(kernels["up"], device, *options)
    assert windows["mlp in again B"] == pytest.approx(3 * inputs)
    assert windows["mlp in B"] == pytest.approx(3 * weight_gradient_seconds(kernels["up"], device, "bf16", 2))
    assert windows["attention out R"] == 0.0
    assert sum(windows.values()) < 3 * sum(layer_seconds(device, plan.workload, plan.config))


@pytest.mark.parametrize("bandwidth", [1e6, 1e9])
def test_what_products_leave_is_exposed(bandwidth: float) -> None:
    """A gather or scatter takes 3/4 of its bytes over the links (and 4 latencies). Beside the listed collectives, each of the
    ten hidden ones of a layer is exposed for what its product leaves."""
    plan = overlapped(bandwidth, layers=(3,), microbatches=1, **QUIET)
    device = plan.fleet.spec(plan.placement[0])
    windows = beside.windows(device, plan.workload, plan.config, 3)
    hidden = expected = 0.0
    for backward in (False, True):
        shape = (plan.workload, plan.config, 3, True, True, backward)
        for operation, nbytes, times in payloads.tensor_collectives(*shape):
            expected += collective_seconds(plan, operation, nbytes, times)
        for one in beside.exchanges(plan.workload, plan.config, 3, backward):
            whole = collective_seconds(plan, BESIDE[one.kind], one.nbytes, one.times)
            expected += max(0.0, whole - windows[one.operation])
            hidden += min(whole, windows[one.operation])
    assert exposed(plan) == pytest.approx(expected, rel=1e-9)
    assert hidden > 0


def collective_seconds(plan: Plan, operation: str, nbytes: float, times: float) -> float:
    """Seconds of collectives on a ring of four ideal devices: three rounds of a quarter of the bytes."""
    link = plan.fleet.clusters[0].node.intra_node
    return times * (link.overhead + 3 * (link.latency + nbytes / 4 / link.bandwidth))


@pytest.mark.parametrize("facts", [
    {}, {"recompute": "full"}, {"pp": 2, "layers": (2, 2), "microbatches": 4}, {"precision": "fp8"}, {"bandwidth": 1e12},
    {"precision": "fp8", "current_scaling": True}, {"precision": "mxfp8"},
    {"pp": 2, "layers": (2, 2), "microbatches": 4, "schedule": "zb-h1"}, {"dp": 2, "zero_stage": 1}, {"dp": 2, "zero_stage": 3},
    {"shape": SHAPE | {"experts": 8, "experts_per_token": 2, "shared_ffn_hidden": 512}, "etp": 1},
])  # fmt: skip
def test_evaluator_and_engine_say_the_same(facts: dict[str, object]) -> None:
    plan = overlapped(**facts)
    step = simulate(plan).step_s
    assert step == pytest.approx(float(evaluate([plan])[0]), rel=1e-9)
    assert plan_costs.step_seconds(plan) <= step * (1 + 1e-9)
    assert step == pytest.approx(simulate(plan, unfolded(plan)).step_s, rel=1e-9)


def test_ranks_gather_values_of_one_byte_under_fp8() -> None:
    """Those of layers; the head's input is gathered in bf16, and results are scattered in bf16."""
    plan = overlapped(layers=(3,), overlaps=False, precision="fp8")
    whole = 512 * 512 * 2.0
    found = payloads.tensor_collectives(plan.workload, plan.config, 3, False, True, False)
    assert found == (("all_gather", whole / 2, 6.0), ("all_gather", whole, 1.0), ("reduce_scatter", whole, 6.0))


def test_nothing_overlaps_without_sequence_parallelism() -> None:
    plan = overlapped(sequence_parallel=False)
    assert not applies(plan.config)
    assert not [one for one in beside.exchanges(plan.workload, plan.config, 3, False) if one.kind in TENSOR]


def backward_alone(plan: Plan, **facts: object) -> Plan:
    """The plan with software that hides sums of input gradients alone."""
    return replace(plan, config=replace(plan.config, tp_overlap=False, tp_backward_overlap=True, **facts))


def test_input_gradients_alone_are_scattered_beside_weight_gradients() -> None:
    """Transformer Engine without user buffers: a layer waits for its gathers and for the scatters of its forward."""
    plan = backward_alone(overlapped(layers=(3,), **QUIET))
    program = text(lowering.program(plan, 0, 1))
    backward = "B0 scatter attention in B0 scatter mlp in B0 tp all_gather tp reduce_scatter"
    assert program == f"F0 tp all_gather tp reduce_scatter {backward} optimizer"
    found = {one.operation: one.times for one in beside.exchanges(plan.workload, plan.config, 3, True)}
    assert found == {"attention in B": 3.0, "mlp in B": 3.0}
    assert not beside.exchanges(plan.workload, plan.config, 3, False)


def test_products_of_weight_gradients_take_longer_beside_scatters() -> None:
    """Of the six scatters of a backward of three layers 0.15 are listed; the head's is exposed with one more."""
    plan = overlapped(layers=(3,), overlaps=False)
    waits, hides = (
        payloads.tensor_collectives(one.workload, one.config, 3, False, True, True) for one in (plan, backward_alone(plan))
    )
    assert waits == (("all_gather", 524_288.0, 6.0), ("reduce_scatter", 524_288.0, 7.0))
    assert hides[0] == waits[0]
    assert hides[1] == ("reduce_scatter", 524_288.0, pytest.approx(1 + 0.15 * 6))


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
def test_bulk_collectives_shorter_than_both_products_beside_them_cost_nothing(schedule: str) -> None:
    """By hand: a rank's weight of queries, keys and values is 512 x 384, of which input and weight gradients of 512 tokens take
    2 x 512 x 512 x 384 / 1e14 = 2.013 us each; a gather or scatter of 512 x 512 values over three quarters of a ring of 2e11
    bytes a second takes 1.966 us. So only what ROW products (0.786 us, bound by memory, three quarters of them) leave is
    exposed: 1.966 - 0.590 us, and 1.966 - 0.75 x 2.684 < 0 of the down projection."""
    plan = overlapped(5e10, layers=(3,), latency=0.0, **QUIET)
    plan = replace(plan, config=replace(plan.config, schedule=schedule))
    (stage,) = (plan_costs.PlanCosts(plan).at(0, plan_costs.replica_classes(plan)[0], (0,)),)
    backward = stage.passes(3, False, False)[1] - stage.work(3, False, False)[1]
    assert backward == pytest.approx(3 * (1.96608e-6 - 0.75 * 0.786432e-6))


@given(
    st.floats(8.0, 13.0), st.sampled_from([2, 4]), st.booleans(), st.sampled_from(["none", "full"]),
    st.sampled_from(["bf16", "fp8"]),
)  # fmt: skip
def test_input_and_weight_gradients_take_as_long_as_a_whole_backward(
    rate: float, tp: int, user_buffers: bool, recompute: str, precision: str
) -> None:
    """So no schedule costs less than those that split the backward, by which the planner bounds a shape."""
    plan = overlapped(10**rate, tp=tp, layers=(2,), microbatches=3, recompute=recompute, precision=precision, **QUIET)
    plan = plan if user_buffers else backward_alone(plan)
    split = replace(plan, config=replace(plan.config, schedule="zb-h1"))
    assert simulate(split).step_s == pytest.approx(simulate(plan).step_s, rel=1e-9)
    assert plan_costs.step_seconds(split) == pytest.approx(plan_costs.step_seconds(plan), rel=1e-9)


@pytest.mark.parametrize("facts", [{"sequence_parallel": False}, {"tp": 1}])
def test_nothing_is_hidden_without_a_scatter(facts: dict[str, object]) -> None:
    plan = overlapped(**{"pp": 2, "layers": (2, 2), "microbatches": 4} | facts)
    with_it, without = backward_alone(plan), replace(plan, config=replace(plan.config, tp_overlap=False))
    assert not applies(with_it.config)
    assert plan_costs.step_seconds(with_it) == plan_costs.step_seconds(without)


@pytest.mark.parametrize("facts", [
    {}, {"recompute": "full"}, {"pp": 2, "layers": (2, 2), "microbatches": 4}, {"dp": 2, "zero_stage": 1},
    {"shape": SHAPE | {"experts": 8, "experts_per_token": 2}, "etp": 1},
])  # fmt: skip
def test_hidden_sums_are_the_same_in_evaluator_and_engine(facts: dict[str, object]) -> None:
    plan = backward_alone(overlapped(1e11, **facts))
    step = simulate(plan).step_s
    assert step == pytest.approx(float(evaluate([plan])[0]), rel=1e-9)
    assert plan_costs.step_seconds(plan) <= step * (1 + 1e-9)
    assert step < simulate(replace(plan, config=replace(plan.config, tp_backward_overlap=False))).step_s


@pytest.mark.parametrize(("precision", "nbytes"), [("bf16", 2.0), ("fp8", 1.0), ("mxfp8", 1.03125), ("nvfp4", 0.5625)])
def test_gathered_values_have_the_bytes_of_their_precision_and_scales(precision: str, nbytes: float) -> None:
    """A scale of one byte for each 32 values of mxfp8, and for each 16 of nvfp4, of which two are in a byte."""
    plan = overlapped(precision="bf16")
    workload = replace(plan.workload, precision=precision)
    assert payloads.gathered_activations(workload, plan.config) == 512 * 512 * nbytes
