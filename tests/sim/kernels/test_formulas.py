"""Formulas of kernels: products (roofline, waves), attention, passes, on a device without secrets."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.errors import PlanError
from sim.formats.catalog import device as device_of
from sim.hardware.device_spec import AttentionRates, GemmCurve
from sim.kernels import formulas
from sim.workload.kernels import ADAPTER_SUM, Attention, Gemm, Pass
from tests import builders

LAUNCH = formulas.PASS_LAUNCH


def test_a_large_product_takes_flops_over_peak() -> None:
    """2 x 1000^3 FLOPs at 1 TFLOP/s."""
    fast_memory = builders.device(speed=1e12, memory_bandwidth=1e15)
    assert formulas.gemm_seconds(Gemm("g", 1000, 1000, 1000), fast_memory, "bf16", 2) == pytest.approx(2e-3, rel=1e-12)


def test_a_thin_product_takes_bytes_over_bandwidth() -> None:
    """(1 x 1000 + 1000 x 1000 + 1 x 1000) values of 2 bytes at 1 GB/s."""
    slow_memory = builders.device(speed=1e18, memory_bandwidth=1e9)
    assert formulas.gemm_seconds(Gemm("g", 1, 1000, 1000), slow_memory, "bf16", 2) == pytest.approx(2.004e-3, rel=1e-12)


def test_efficiencies_and_launch_count_once_a_product() -> None:
    curve = GemmCurve(launch=5e-6, compute_efficiency=0.5, memory_efficiency=1.0)
    device = builders.device(speed=1e12, memory_bandwidth=1e15, gemm=curve)
    assert formulas.gemm_seconds(Gemm("g", 1000, 1000, 1000, count=3), device, "bf16", 2) == pytest.approx(3 * (5e-6 + 4e-3))


def test_a_product_takes_whole_waves() -> None:
    """Four units, tiles of 100 x 100: 400 rows are one wave, as are 100; 500 rows need a second one."""
    device = builders.device(
        speed=1e12, memory_bandwidth=1e18, compute_units=4, gemm=GemmCurve(0.0, 1.0, 1.0, wave_exponent=1.0, tile=(100, 100))
    )
    seconds = [formulas.gemm_seconds(Gemm("g", rows, 100, 1000), device, "bf16", 2) for rows in (100, 400, 401, 500, 800)]
    one_wave = 2 * 400 * 100 * 1000 / 1e12
    assert seconds == pytest.approx([one_wave, one_wave, 2 * one_wave, 2 * one_wave, 2 * one_wave], rel=1e-12)


def test_a_wave_exponent_of_zero_forgives_the_padding() -> None:
    device = builders.device(speed=1e12, memory_bandwidth=1e18, compute_units=4)
    assert formulas.gemm_seconds(Gemm("g", 401, 100, 1000), device, "bf16", 2) == pytest.approx(2 * 401 * 100 * 1000 / 1e12)


def test_a_precision_without_a_peak_is_refused_with_those_that_have_one() -> None:
    with pytest.raises(PlanError) as caught:
        formulas.gemm_seconds(Gemm("g", 8, 8, 8), device_of("v100-sxm2-16gb"), "bf16", 2)
    assert str(caught.value) == "device v100-sxm2-16gb has no bf16 peak; it has fp16, fp32"


def test_fused_attention_counts_the_causal_half_and_two_and_a_half_times_in_the_backward() -> None:
    """2 b a s^2 d FLOPs at half of 1 TFLOP/s."""
    device = builders.device(speed=1e12, attention=AttentionRates(0.5, 0.25))
    core = Attention("a", batch=2, heads=8, kv_heads=8, head_dim=64, seq_len=1000)
    forward = 2 * 2 * 8 * 1000**2 * 64 / 0.5e12
    assert formulas.attention_seconds(core, device, "bf16", 2, "flash", False) == pytest.approx(forward, rel=1e-12)
    assert formulas.attention_seconds(core, device, "bf16", 2, "flash", True) == pytest.approx(2.5 * 2 * forward, rel=1e-12)


def test_sequences_of_half_length_reach_half_of_the_share_of_attention() -> None:
    rates = AttentionRates(0.6, 0.5, half_length=1400.0)
    assert (rates.share(1400, 128, False), rates.share(1400, 128, True)) == (0.3, 0.25)
    assert rates.share(12600, 128, False) == pytest.approx(0.54, rel=1e-12)


@pytest.mark.parametrize(("steps", "streams", "window", "forward", "backward"), [
    (1, 1, 0, 8000, 8000), (4, 2, 0, 3000, 2000), (4, 1, 0, 2000, 2000), (1, 1, 500, 1000, 1000), (2, 2, 4000, 6000, 4000),
])  # fmt: skip
def test_kernels_of_a_ring_and_of_a_window_see_as_few_keys_as_short_sequences(
    steps: int, streams: int, window: int, forward: int, backward: int
) -> None:
    core = Attention("a", 1, 8, 8, 64, seq_len=8000, cp=steps, window=window, steps=steps, streams=streams)
    device = builders.device(speed=1e12, attention=AttentionRates(0.5, 0.5, half_length=2000.0, alone=(0.0, 0.0)))
    for back, length, times in ((False, forward, 1.0), (True, backward, 2.5)):
        seconds = times * core.flops / (0.5e12 * length / (length + 2000))
        assert formulas.attention_seconds(core, device, "bf16", 2, "flash", back) == pytest.approx(seconds, rel=1e-12)


def test_fused_attention_is_not_faster_than_its_bytes() -> None:
    """Queries, keys, values and results: 4 x 8 heads x 1,000 tokens x 64 values of 2 bytes; twice as many in the backward."""
    device = builders.device(speed=1e30, memory_bandwidth=1e9, elementwise_efficiency=0.5)
    core = Attention("a", batch=1, heads=8, kv_heads=8, head_dim=64, seq_len=1000)
    found = [formulas.attention_seconds(core, device, "bf16", 2, "flash", backward) for backward in (False, True)]
    assert found == pytest.approx([4 * 8 * 1000 * 64 * 2 / 0.5e9, 8 * 8 * 1000 * 64 * 2 / 0.5e9], rel=1e-12)


@given(st.integers(1, 1 << 17), st.integers(1, 1 << 17), st.integers(0, 3000), st.booleans())
def test_a_window_makes_no_attention_slower(seq_len: int, window: int, half_length: int, backward: bool) -> None:
    device = builders.device(attention=AttentionRates(0.5, 0.4, half_length=float(half_length)))
    narrow, full = (Attention("a", 1, 8, 2, 64, seq_len, window=one) for one in (min(window, seq_len), 0))
    seconds = [formulas.attention_seconds(core, device, "bf16", 2, "flash", backward) for core in (narrow, full)]
    assert seconds[0] <= seconds[1] * (1 + 1e-12)


@pytest.mark.parametrize(
    ("head_dim", "forward", "backward"),
    [(128, 0.6, 0.5), (64, 0.45, 0.4), (32, 0.225, 0.2), (96, 0.45, 0.375), (256, 0.63, 0.4), (512, 0.63, 0.4)],
)
def test_a_head_is_padded_to_the_next_kernel(head_dim: int, forward: float, backward: float) -> None:
    kernels = ((64, 0.75, 0.8), (128, 1.0, 1.0), (256, 1.05, 0.8))
    rates = AttentionRates(0.6, 0.5, head_dims=kernels)
    found = rates.share(4096, head_dim, False), rates.share(4096, head_dim, True)
    assert found == pytest.approx((forward, backward), rel=1e-12)


def test_fp8_has_its_own_curve_of_products_and_the_attention_of_the_software() -> None:
    """float8 of torchao changes linear layers alone; Transformer Engine's attention is cuDNN's in bf16 and fp8."""
    device = builders.device(
        peak=(("bf16", 1e12), ("fp8", 2e12)),
        attention=AttentionRates(0.25, 0.25),
        newest_attention=AttentionRates(0.5, 0.5),
        gemm=GemmCurve(0.0, 0.8, 1e9),
        narrow_gemm=(("fp8", GemmCurve(1e-6, 0.5, 1e9)),),
    )
    core = Attention("a", batch=1, heads=1, kv_heads=1, head_dim=100, seq_len=1000)  # 2e8 FLOPs
    for newest, rate in ((False, 0.25e12), (True, 0.5e12)):
        of = replace(device, runs_newest=newest)
        seconds = [formulas.attention_seconds(core, of, precision, 2, "flash", False) for precision in ("bf16", "fp8")]
        assert seconds == pytest.approx([2e8 / rate] * 2, rel=1e-12)
    products = [formulas.gemm_seconds(Gemm("g", 1000, 1000, 1000), device, precision, 2) for precision in ("bf16", "fp8")]
    assert products == pytest.approx([2e9 / 0.8e12, 1e-6 + 2e9 / 1e12], rel=1e-9)


def test_attention_multiplies_in_fp8_where_the_software_does_and_products_are_narrow() -> None:
    device = builders.device(
        peak=(("bf16", 1e12), ("fp8", 2e12)), newest_attention=AttentionRates(0.5, 0.5, fp8=1.25), fp8_attention=True,
        runs_newest=True,
    )  # fmt: skip
    assert device.attention_of("fp8").forward == 0.625
    assert device.attention_of("bf16").forward == 0.5
    assert replace(device, fp8_attention=False).attention_of("fp8").forward == 0.5


def test_a_thin_product_of_an_adapter_moves_its_bytes_at_the_rate_of_passes() -> None:
    """8,000 x 16 x 4,000 have 32.192 million values of 2 bytes: 80.48 us at 0.8 of 1 TB/s, whatever the curve says."""
    curve = GemmCurve(1e-6, 1.0, 1.5)
    device = builders.device(speed=1e15, memory_bandwidth=1e12, elementwise_efficiency=0.8, gemm=curve)
    wide, thin = Gemm("g", 8000, 16, 4000), Gemm("g", 8000, 16, 4000, thin=True)
    assert formulas.gemm_seconds(thin, device, "bf16", 2) == pytest.approx(1e-6 + 80.48e-6, rel=1e-9)
    assert formulas.gemm_seconds(wide, device, "bf16", 2) == pytest.approx(1e-6 + 64.384e-6 / 1.5, rel=1e-9)


def test_the_backward_of_a_thin_product_moves_its_bytes_at_that_rate_too() -> None:
    """Each of both products moves as many bytes as the forward does."""
    device = builders.device(gemm=GemmCurve(0.0, 1.0, 0.25), elementwise_efficiency=0.8)
    thin = Gemm("g", 8000, 16, 4000, thin=True)
    forward = formulas.forward_seconds(thin, device, "bf16", 2, "flash")
    assert formulas.input_gradient_seconds(thin, device, "bf16", 2, "flash") == pytest.approx(forward, rel=1e-12)
    assert formulas.weight_gradient_seconds(thin, device, "bf16", 2) == pytest.approx(forward, rel=1e-12)


def test_software_sums_adapters_in_a_multiple_of_peft_s_passes_both_ways() -> None:
    """5e6 bytes forward and 4e6 backward at 1 TB/s, half of them with `adapter: 0.5`; no other key changes them."""
    device = builders.device(memory_bandwidth=1e12, elementwise_efficiency=1.0, passes=(("norm", 9.0), ("adapter", 0.5)))
    sums = Pass(ADAPTER_SUM, 5e6, backward=4e6)
    forward = formulas.forward_seconds(sums, device, "bf16", 2, "flash")
    assert forward == pytest.approx(LAUNCH + 2.5e-6, rel=1e-12)
    assert formulas.backward_seconds(sums, device, "bf16", 2, "flash") == pytest.approx(LAUNCH + 2e-6, rel=1e-12)
    plain = replace(device, passes=(("norm", 9.0),))
    assert formulas.backward_seconds(sums, plain, "bf16", 2, "flash") == pytest.approx(LAUNCH + 4e-6, rel=1e-12)


@pytest.mark.parametrize(("routed", "precision", "moved"), [(True, "mxfp8", 0.0), (False, "mxfp8", 8e6), (True, "bf16", 8e6)])
def test_products_of_experts_in_mxfp8_apply_their_activation_function(routed: bool, precision: str, moved: float) -> None:
    """Without bytes a pass takes its launch, 3 us."""
    device = builders.device(memory_bandwidth=1e12, elementwise_efficiency=1.0, fused_experts=True)
    seconds = formulas.forward_seconds(Pass("activation", 8e6, routed=routed), device, precision, 2, "flash")
    assert seconds == pytest.approx(3e-6 + moved / 1e12, rel=1e-12)
    assert device.moved(Pass("activation", 8e6, routed=routed), precision) == moved


def test_a_result_that_is_added_in_memory_moves_more_bytes() -> None:
    """A product of 1,000 x 10 by 10 x 1,000 moves 2 x (10,000 + 10,000 + 1,000,000) bytes, and 6 more for each result."""
    device = builders.device(speed=1e30, gemm=GemmCurve(0.0, 1.0, 1.0), memory_bandwidth=1e9)
    assert formulas.gemm_seconds(Gemm("g", 1000, 1000, 10), device, "bf16", 2) == pytest.approx(2.04e-3, rel=1e-12)
    assert formulas.gemm_seconds(Gemm("g", 1000, 1000, 10), device, "bf16", 2, 6.0) == pytest.approx(8.04e-3, rel=1e-12)


def test_unfused_attention_takes_longer_than_fused() -> None:
    core = Attention("a", batch=2, heads=8, kv_heads=8, head_dim=64, seq_len=1000)
    fused, unfused = (
        formulas.attention_seconds(core, builders.device(), "bf16", 2, kind, False) for kind in ("flash", "unfused")
    )
    assert unfused > 2 * fused


@pytest.mark.parametrize(
    ("precision", "nbytes", "backward", "moved"),
    [("bf16", 2, False, 6 * 2 + 1), ("bf16", 2, True, 9 * 2 + 1), ("fp32", 4, False, 8 * 4 + 1), ("fp32", 4, True, 18 * 4 + 1)],
)
def test_an_unfused_core_moves_its_scores_through_memory(precision: str, nbytes: int, backward: bool, moved: int) -> None:
    """2 x 8 x 1000^2 scores, a mask of one byte each; products at infinite speed."""
    device = builders.device(speed=1e30, memory_bandwidth=1e9)
    core = Attention("a", batch=2, heads=8, kv_heads=8, head_dim=64, seq_len=1000)
    seconds = formulas.attention_seconds(core, device, precision, nbytes, "unfused", backward)
    assert seconds == pytest.approx(LAUNCH + moved * 2 * 8 * 1000**2 / 1e9, rel=1e-9)


def test_an_unfused_core_without_dropout_moves_22_of_32_bytes_of_a_score() -> None:
    """Forward: product out, softmax in and out, product in. Backward: product out, softmax twice in and once out, and products
    three times in; 2 bytes each. With dropout 13 and 19 bytes."""
    device = builders.device(speed=1e30, memory_bandwidth=1e9, passes=(("scores", 22 / 32),))
    core = Attention("a", batch=2, heads=8, kv_heads=8, head_dim=64, seq_len=1000)
    both = [formulas.attention_seconds(core, device, "bf16", 2, "unfused", backward) for backward in (False, True)]
    assert sum(both) == pytest.approx(2 * LAUNCH + (4 + 7) * 2 * 2 * 8 * 1000**2 / 1e9, rel=1e-9)


@pytest.mark.parametrize(("head_dim", "rate"), [(216, 1e12), (108, 0.5 * 1e12 / 4)])
def test_products_with_a_head_dim_off_16_bytes_leave_the_tensor_cores(head_dim: int, rate: float) -> None:
    """4 b a s^2 d FLOPs; fp32's peak is a quarter of that of 2-byte values."""
    device = builders.device(speed=1e12, memory_bandwidth=1e30)
    core = Attention("a", batch=1, heads=4, kv_heads=4, head_dim=head_dim, seq_len=1000)
    seconds = formulas.attention_seconds(core, device, "fp16", 2, "unfused", False)
    assert seconds == pytest.approx(LAUNCH + 4 * 4 * 1000**2 * head_dim / rate, rel=1e-9)


def test_products_in_fp32_run_on_cores_that_reach_more_of_their_peak() -> None:
    device = builders.device(speed=4e12, memory_bandwidth=1e18, gemm=GemmCurve(0.0, 0.5, 1.0))
    assert formulas.gemm_seconds(Gemm("g", 1000, 1000, 1000), device, "fp32", 4) == pytest.approx(2e-3 / 0.93, rel=1e-12)


def test_a_pass_takes_its_launch_and_bytes_over_bandwidth() -> None:
    device = builders.device(memory_bandwidth=1e9, elementwise_efficiency=0.5)
    assert formulas.pass_seconds(1e6, device) == pytest.approx(LAUNCH + 2e-3, rel=1e-12)
