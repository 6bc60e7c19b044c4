"""Rooflines: FLOPs, bytes and seconds of kernels and stages, counted by hand on a device without secrets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.analytic import stage_costs
from sim.formats import catalog
from sim.hardware.cluster import Trunk
from sim.kernels import compute, formulas
from sim.results.roofline import rooflines
from sim.workload.kernels import Attention, Gemm, Pass
from tests import builders
from tests.builders import any_plan, cluster, device

TRUNK = Trunk(("a", "b"), "infiniband", 1e10, 5e-5)


@pytest.fixture
def plan() -> Any:
    return builders.plan(builders.fleet(cluster("a", devices=4)), pp=4, microbatches=4, layers=(5, 7, 6, 6))


def test_a_product_is_two_flops_a_cell_and_moves_three_matrices_three_times_over(plan: Any) -> None:
    """Forward and two backward products of (100 x 30) by (30 x 20), two of them, at 2 bytes a value."""
    flops, moved = formulas.kernel_work(Gemm("g", 100, 20, 30, count=2), plan.specs[0], plan.workload, plan.config)
    assert flops == 3 * 2 * (2 * 100 * 20 * 30)
    assert moved == 3 * 2 * 2 * (100 * 30 + 30 * 20 + 100 * 20)


def test_fused_attention_reads_and_writes_vectors_only(plan: Any) -> None:
    """64 tokens, 4 heads of 8, 2 of keys and values: 2,048 values of queries, and as many of keys and values."""
    core = Attention("attention", 1, 4, 2, 8, 64)
    flops, moved = formulas.kernel_work(core, plan.specs[0], plan.workload, replace(plan.config, attention="flash"))
    assert flops == 3.5 * 2 * (4 * 64 * 64) * 8
    assert moved == 2 * (2 * 2048 + 2048) + 2 * (4 * 2048 + 2 * 2048)


def test_unfused_attention_moves_its_scores(plan: Any) -> None:
    core = Attention("attention", 1, 4, 4, 8, 64)
    flops, moved = formulas.kernel_work(core, plan.specs[0], plan.workload, replace(plan.config, attention="unfused"))
    assert flops == 3 * 4 * (4 * 64 * 64) * 8
    assert moved == ((6 + 9) * 2 + 2) * (4 * 64 * 64)


def test_a_pass_moves_and_does_nothing(plan: Any) -> None:
    (device,), norm = plan.specs, Pass("norm", 1000.0)
    assert formulas.kernel_work(norm, device, plan.workload, plan.config) == (0.0, 2750.0)
    eager = replace(device, passes=(("norm", 2.0),))
    assert formulas.kernel_work(norm, eager, plan.workload, plan.config) == (0.0, 5500.0)


def test_the_logits_of_a_plan_in_fp8_run_in_bf16_at_the_clock_of_its_layers() -> None:
    """Three products of 4,096 x 4,096 x 51,200: the same price as in `compute.head_parts`."""
    spec = catalog.device("h100-sxm5-80gb")
    machines = builders.fleet(cluster("a", devices=1, spec=spec))
    shape = {"hidden": 4096, "vocab": 51200}
    (found,) = rooflines(builders.plan(machines, precision="fp8", shape=shape, seq_len=4096))
    (logits,) = (point for point in found.products if point.name == "logits")
    product = 2 * 4096 * 4096 * 51200 / (989e12 * spec.gemm.compute_efficiency * 0.87)
    assert logits.seconds == pytest.approx(3 * (spec.gemm.launch + product), rel=1e-9)


@pytest.mark.parametrize(
    ("pp", "vpp", "fast", "names"),
    [
        (8, 1, 7, [["stage 0", "stages 1-6"], ["stage 7"]]),
        (2, 5, 1, [["stage 0", "stages 2, 4, 6, 8"], ["stages 1, 3, 5, 7", "stage 9"]]),
        (12, 4, 10, [["stage 0", "39 stages, 1 to 45"], ["7 stages, 10 to 46", "stage 47"]]),
    ],
)
def test_many_scattered_stages_are_counted(pp: int, vpp: int, fast: int, names: list[list[str]]) -> None:
    """The last pipeline ranks are on devices of another type."""
    clusters = cluster("a", devices=fast, spec=device("fast")), cluster("b", devices=pp - fast, spec=device("slow", 1e13))
    machines = builders.fleet(*clusters, trunks=(TRUNK,))
    schedule = "interleaved" if vpp > 1 else "1f1b"
    plan = builders.plan(machines, pp=pp, vpp=vpp, microbatches=pp, layers=(1,) * (pp * vpp), schedule=schedule)
    assert [[point.name for point in one.stages] for one in rooflines(plan)] == names


def test_the_flops_of_the_stages_are_those_of_the_model(plan: Any) -> None:
    """Of 24 layers and the logits: three times 2 x parameters of the products x tokens, and the core's."""
    model, tokens = plan.workload.model, plan.workload.seq_len * plan.config.microbatch_size
    (one,) = rooflines(plan)
    assert [point.name for point in one.stages] == ["stage 0", "stages 1-2", "stage 3"]
    per_layer = 6.0 * tokens * (12 * model.hidden**2) + 3.5 * 2.0 * tokens * plan.workload.seq_len * model.hidden
    head = 6.0 * tokens * model.hidden * model.vocab
    assert [point.flops for point in one.stages] == pytest.approx([5 * per_layer, 7 * per_layer, 6 * per_layer + head])


def test_the_seconds_are_those_that_the_engine_plays(plan: Any) -> None:
    (one,) = rooflines(plan)
    device = plan.fleet.spec(plan.placement[0])
    first = stage_costs.compute_seconds(device, plan.workload, plan.config, 5, True, False)
    assert one.stages[0].seconds == sum(first)
    times = {time.name: time.forward + time.backward for time in compute.kernel_times(device, plan.workload, plan.config)}
    for point in (*one.products, *one.attention):
        if point.name != "logits":
            assert point.seconds == pytest.approx(times[point.name], rel=1e-12)


def test_a_type_of_device_has_its_own_roof_and_its_own_stages() -> None:
    fast, slow = (
        device("fast", speed=2e14, memory_bandwidth=2e12),
        device("slow", speed=1e14, memory_bandwidth=1e12),
    )
    fleet = builders.fleet(cluster("a", devices=2, spec=fast), cluster("b", devices=2, spec=slow), trunks=(TRUNK,))
    one, other = rooflines(builders.plan(fleet, pp=4, microbatches=4, layers=(6, 6, 6, 6)))
    assert (one.device, one.peak, one.bandwidth, [p.name for p in one.stages]) == ("fast", 2e14, 2e12, ["stage 0", "stage 1"])
    assert (other.device, other.peak, other.bandwidth, [p.name for p in other.stages]) == (
        "slow",
        1e14,
        1e12,
        ["stage 2", "stage 3"],
    )
    assert [p.name for p in one.products if p.name == "logits"] == []
    assert [p.name for p in other.products if p.name == "logits"] == ["logits"]
    assert one.roof(10) == 2e13 and one.roof(1000) == 2e14


@given(data=st.data())
def test_on_ideal_devices_products_stay_under_the_roof_and_all_else_under_the_peak(data: Any) -> None:
    """The model lets a fused attention core move its vectors for nothing: below the bend it may pass the memory's roof."""
    for one in rooflines(data.draw(any_plan())):
        for point in one.products:
            assert point.rate <= one.roof(point.intensity) * (1 + 1e-9), point.name
        for point in (*one.attention, *one.stages):
            assert point.rate <= one.peak * (1 + 1e-9), point.name
