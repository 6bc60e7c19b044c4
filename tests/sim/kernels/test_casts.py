"""Casts beside products in fp8 and mxfp8: bytes counted by hand, and times that Transformer Engine's own benchmark measured.

NVIDIA/TransformerEngine d0067d0d, docs/examples/gemm_profiling/gemm_profiling.rst: the twelve products of a layer of 15,872
tokens, hidden 4,096 and intermediate 16,384, in milliseconds, after five seconds of products. Its autocast casts the input and
the weight of each of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.analytic import stage_amounts
from sim.formats import catalog
from sim.hardware.device_spec import DeviceSpec, GemmCurve
from sim.hardware.stack import DEFAULT
from sim.kernels.casts import cast_bytes, weight_cast_bytes
from sim.kernels.compute import rank_kernels
from sim.kernels.formulas import forward_seconds, gemm_seconds, input_gradient_seconds, pass_seconds, weight_gradient_seconds
from sim.plan.parallel_config import ParallelConfig
from sim.workload.kernels import Casts, Gemm
from sim.workload.workload import Workload
from tests import builders

TOKENS, WIDE = 15872, ((12288, 4096), (4096, 4096), (16384, 4096), (4096, 16384))
LAYER = tuple(Gemm("product", *shape) for n, k in WIDE for shape in ((TOKENS, n, k), (TOKENS, k, n), (k, n, TOKENS)))
"""The products of a layer: forward, gradient of the input, gradient of the weight."""
MEASURED = {
    "h200-sxm-141gb": {"bf16": 31.97, "cast before": 16.785, "delayed": 18.978, "current": 20.285},
    "b300-sxm-270gb": {"bf16": 13.102, "cast before": 6.812, "delayed": 7.802, "current": 9.147},
}
IN_MXFP8 = {"cast before": 7.161, "cast": 8.984}
"""Of the B300."""
"""Device -> milliseconds; the H200 is an NVL of 600 W. bf16 as in the run with products that were cast before."""


def device(name: str, current: bool = False) -> DeviceSpec:
    """A device at the rates of the newest software, without the shares of the default stack."""
    stack = replace(DEFAULT, gemm=1.0, elementwise=1.0, newest_products=True, current_scaling=current)
    return stack.device(catalog.device_facts(name).isolated())


def milliseconds(name: str, precision: str) -> float:
    return 1e3 * sum(gemm_seconds(one, device(name), precision, 2) for one in LAYER)


def test_products_in_fp8_are_faster_by_what_was_measured() -> None:
    """On an H200 1.905 times as fast as in bf16 at the same clock."""
    measured = MEASURED["h200-sxm-141gb"]
    ratio = milliseconds("h200-sxm-141gb", "bf16") / milliseconds("h200-sxm-141gb", "fp8")
    assert ratio == pytest.approx(measured["bf16"] / measured["cast before"], rel=0.02)


@pytest.mark.parametrize(("precision", "name"), [("bf16", "bf16"), ("fp8", "cast before")])
def test_products_on_b300_take_what_was_measured(precision: str, name: str) -> None:
    assert milliseconds("b300-sxm-270gb", precision) == pytest.approx(MEASURED["b300-sxm-270gb"][name], rel=0.03)


@pytest.mark.parametrize("name", MEASURED)
@pytest.mark.parametrize("scaling", ["delayed", "current"])
def test_casts_take_what_was_measured(name: str, scaling: str) -> None:
    """Of the input, m x k, and of the weight, k x n, of each product."""
    spec = device(name, scaling == "current")
    curve = spec.curve_of("fp8")
    moved = 0.0
    for one in LAYER:
        for matrix in (one, replace(one, m=one.n)):
            moved += cast_bytes(matrix, curve, spec.current_scaling)[0]
    measured = MEASURED[name][scaling] - MEASURED[name]["cast before"]
    assert pass_seconds(moved, spec) * 1e3 == pytest.approx(measured, rel=0.25)


def test_products_and_casts_in_mxfp8_take_what_was_measured() -> None:
    """As in fp8, of both inputs of each product."""
    spec = device("b300-sxm-270gb")
    assert milliseconds("b300-sxm-270gb", "mxfp8") == pytest.approx(IN_MXFP8["cast before"], rel=0.01)
    both = [matrix for one in LAYER for matrix in (one, replace(one, m=one.n))]
    moved = sum(cast_bytes(one, spec.curve_of("mxfp8"))[0] for one in both)
    assert pass_seconds(moved, spec) * 1e3 == pytest.approx(IN_MXFP8["cast"] - IN_MXFP8["cast before"], rel=0.15)


@pytest.mark.parametrize(("casts", "kind", "current", "found"), [
    (Casts(), "copy", False, (3, 3, 0)),
    (Casts(), "copy", True, (5, 5, 0)),
    (Casts(), "transposed", False, (4, 4, 0)),
    (Casts(), "transposed", True, (6, 6, 0)),
    (Casts(normed=True), "copy", False, (0, 3, 0)),
    (Casts(normed=True), "copy", True, (3, 5, 0)),
    (Casts(normed=True), "transposed", False, (0, 4, 2)),
    (Casts(normed=True), "transposed", True, (4, 6, 0)),
    (Casts(4, 1, True), "transposed", False, (0, 4, 2)),
    (Casts(4, 1, True), "transposed", True, (0.75, 6, 2)),
    (Casts(1, 4), "transposed", False, (4, 0.75, 20)),
    (Casts(1, 4), "copy", True, (5, 1.25, 0)),
    (Casts(), "blocks", False, (4.0625, 4.0625, 0)),
    (Casts(4, 1, True), "blocks", True, (4.0625 / 4, 4.0625, 0)),
    (Casts(1, 4), "blocks", False, (4.0625, 4.0625 / 4, 0)),
    (Casts(), "contained", False, (0, 0, 0)),
    (None, "transposed", True, (0, 0, 0)),
])  # fmt: skip
def test_bytes_of_casts(casts: Casts | None, kind: str, current: bool, found: tuple[float, float, float]) -> None:
    """Bytes a value of the input (m x k = 200), of the gradient (m x n = 2,000), and in the weight gradient, of the input."""
    moved = cast_bytes(Gemm("product", 10, 200, 20, casts=casts), GemmCurve(0.0, 1.0, 1.0, casts=kind), current)
    assert moved == (found[0] * 200, found[1] * 2000, found[2] * 200)


def test_a_rank_casts_what_it_holds_of_a_layer() -> None:
    """Llama with hidden 4,096 and tp 4: norms write the inputs of two products, and ranks gather the gradients of two."""
    model = builders.model(hidden=4096, heads=32, kv_heads=8, ffn_hidden=14336, mlp="swiglu")
    work = Workload(model, 8, 4096, "fp8")
    spec = catalog.device("h100-sxm5-80gb")
    bare = replace(spec, narrow_gemm=tuple((name, replace(curve, casts="contained")) for name, curve in spec.narrow_gemm))
    products = [one for one in rank_kernels(work, ParallelConfig(tp=4, sequence_parallel=True)) if isinstance(one, Gemm)]

    def seconds(chip: DeviceSpec) -> tuple[float, float, float]:
        return (
            sum(forward_seconds(one, chip, "fp8", 2, "flash") for one in products),
            sum(input_gradient_seconds(one, chip, "fp8", 2, "flash") for one in products),
            sum(weight_gradient_seconds(one, chip, "fp8", 2) for one in products),
        )

    rows, hidden, heads, ffn = 4096, 4096, 1536, 3584
    passes = (
        (4 * rows * (1024 + ffn), 2),  # inputs of projection and down, with a transposed copy
        (4 * rows * (heads + 2 * ffn) + 3 * rows * hidden * 2 / 4, 4),  # gradients; those of projection and down in parts
        (2 * rows * hidden * 4, 4),  # transposed after they were gathered
    )
    for own, others, (moved, launches) in zip(seconds(spec), seconds(bare), passes, strict=True):
        expected = launches * 3e-6 + moved / (spec.memory_bandwidth * spec.elementwise_efficiency)
        assert own - others == pytest.approx(expected, rel=1e-9)


def test_a_router_casts_nothing_and_experts_cast_all_they_get() -> None:
    model = builders.model(hidden=4096, experts=8, experts_per_token=2, ffn_hidden=2048, mlp="swiglu")
    config = ParallelConfig(dp=2, ep=2, num_microbatches=(1, 1))
    casts = {one.name: one.casts for one in rank_kernels(Workload(model, 8, 4096, "fp8"), config) if isinstance(one, Gemm)}
    assert casts == {
        "qkv": Casts(normed=True), "projection": Casts(), "router": None, "up": Casts(activation="gradient"),
        "down": Casts(activation="input"),
    }  # fmt: skip


def test_products_that_apply_the_activation_cast_what_it_writes() -> None:
    """Of experts in mxfp8, m 10, n 200, k 20: the gradient of the first product's result, the input of the second product."""
    curve = GemmCurve(0.0, 1.0, 1.0, casts="blocks")
    first, second = (Gemm("expert", 10, 200, 20, casts=Casts(activation=one)) for one in ("gradient", "input"))
    assert cast_bytes(first, curve, fused_experts=True) == (812.5, 0.0, 0.0)
    assert cast_bytes(second, curve, fused_experts=True) == (0.0, 8125.0, 0.0)
    assert cast_bytes(first, curve) == cast_bytes(second, curve) == (812.5, 8125.0, 0.0)


@pytest.mark.parametrize(("kind", "current", "owned", "found"), [
    ("contained", False, None, 0.0),
    ("copy", False, None, 2 + 1),
    ("copy", True, None, 2 + 2 + 1),
    ("copy", True, 0.25, 5 / 4),
    ("transposed", False, None, 2 + 1 + 1),
    ("transposed", True, None, 2 + 2 + 1 + 1),
    ("transposed", False, 0.125, 3 / 8 + 2),
    ("blocks", False, None, 2 + 2 * 33 / 32),
])  # fmt: skip
def test_bytes_of_the_casts_of_weights(kind: str, current: bool, owned: float | None, found: float) -> None:
    curve = replace(catalog.device_facts("h100-sxm5-80gb").isolated().gemm, casts=kind)
    assert weight_cast_bytes(curve, current, owned) == found


@pytest.mark.parametrize(("precision", "gathered", "bytes_per_weight"), [
    ("bf16", True, 0.0), ("mxfp8", True, 4.0625), ("fp8", False, 3.0), ("fp8", True, 3 / 4), ("nvfp4", True, 0.0),
])  # fmt: skip
def test_weights_are_cast_once_a_step(precision: str, gathered: bool, bytes_per_weight: float) -> None:
    """Of two layers of Llama 3 8B on 4 B200, 218,103,808 matrix parameters each: attention 2 x 4096 x 4096 + 2 x 4096 x 1024,
    MLP 3 x 4096 x 14336. Gathered in fp8, each rank casts a quarter."""
    chip = device("b200-sxm-180gb")
    config = ParallelConfig(dp=4, num_microbatches=(8,) * 4, fp8_param_gather=gathered)
    workload, plain = (Workload(catalog.model("llama-3-8b"), 32, 8192, one) for one in (precision, "bf16"))
    both = [stage_amounts.optimizer_seconds(chip, one, config, 2, False, False) for one in (workload, plain)]
    expected = pass_seconds(bytes_per_weight * 2 * 218_103_808, chip) if bytes_per_weight else 0.0
    assert both[0] - both[1] == pytest.approx(expected)
    more = replace(config, num_microbatches=(1,) * 4)
    assert stage_amounts.optimizer_seconds(chip, workload, more, 2, False, False) == both[0], "whatever the microbatches"
