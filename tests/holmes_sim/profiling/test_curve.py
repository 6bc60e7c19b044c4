"""Products that keep the simulator's own law give its curve back; a spread is what it says."""

from __future__ import annotations

import pytest

from holmes_sim.profiling import curve
from holmes_sim.profiling.curve import Product
from holmes_sim.profiling.timings import Timings
from sim.hardware.device_spec import AttentionRates, DeviceSpec, GemmCurve
from sim.kernels.formulas import gemm_seconds
from sim.workload.kernels import Gemm

PEAK, BANDWIDTH = 1e14, 1e12


@pytest.mark.parametrize("exponent", [0.0, 0.3])
def test_the_curve_of_a_device_is_found_again(exponent: float) -> None:
    law = GemmCurve(5e-6, 0.7, 0.5, exponent, curve.TILE)
    device = DeviceSpec("d", "v", 100, (("bf16", PEAK),), 1.0, BANDWIDTH, 1.0, law, AttentionRates(1.0, 1.0), 1.0)
    sides = [(m, n, n) for m in (1, 16, 512, 4096) for n in (64, 1024, 4096, 8192)]
    products = [Product(*side, Timings((gemm_seconds(Gemm("g", *side), device, "bf16", 2),))) for side in sides]
    found, error = curve.fit(products, PEAK, BANDWIDTH, 2, 100, True)
    assert error < 0.05
    assert found.wave_exponent == exponent
    assert (found.launch, found.compute_efficiency, found.memory_efficiency) == pytest.approx((5e-6, 0.7, 0.5), rel=0.1)


def test_a_cpu_has_no_waves() -> None:
    products = [Product(n, n, n, Timings((n**3 / 1e9,))) for n in (64, 128)]
    assert curve.fit(products, 2e9, 1e9, 4, 1, False)[0].wave_exponent == 0.0


def test_a_spread_is_half_the_interquartile_range_over_the_median() -> None:
    found = Timings((4.0, 1.0, 2.0, 3.0, 5.0))
    assert (found.minimum, found.median, found.relative_spread) == (1.0, 3.0, 1 / 3)
    assert Timings((7.0,)).relative_spread == 0.0
