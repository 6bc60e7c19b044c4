"""Matrix products by the devices' fitted curves against measured ones: bf16, microseconds, medians over software versions.

Measured by NVIDIA aiconfigurator 095f58a, aic-core/src/aiconfigurator_core/systems/data/*/gemm (Apache-2.0). The shapes are ten
of the 1,438 with m and n >= 2,048 and k >= 1,024 that all nine devices have, drawn at random."""

from __future__ import annotations

from statistics import median

import pytest

from sim.formats import catalog
from sim.kernels.formulas import forward_seconds, gemm_seconds, input_gradient_seconds, weight_gradient_seconds
from sim.workload.kernels import Gemm

DEVICES = (
    "b200-sxm-180gb", "gb200", "b300-sxm-270gb", "gb300", "rtx-pro-6000", "a100-sxm4-80gb", "h100-sxm5-80gb", "h200-sxm-141gb",
    "l40s",
)  # fmt: skip
MEASURED = {
    (2304, 2048, 51200): (302.8, 280.2, 280.9, 251.4, 1174.9, 1890.2, 584.3, 604.8, 2585.9),
    (2560, 2560, 65536): (551.9, 494.2, 504.9, 448.7, 2198.5, 3483.0, 1203.3, 1149.2, 4451.1),
    (2560, 10240, 2560): (88.1, 81.7, 79.4, 73.6, 372.5, 543.2, 178.6, 182.4, 582.6),
    (3072, 8192, 10240): (342.0, 327.7, 312.3, 275.7, 1381.6, 2211.1, 649.4, 662.2, 2423.1),
    (3584, 8192, 65536): (2868.1, 2638.0, 2668.9, 2023.1, 9681.1, 15536.0, 5036.9, 5311.2, 19117.6),
    (3840, 12288, 5120): (302.4, 294.8, 288.6, 257.1, 1165.6, 1985.2, 647.0, 636.7, 2212.8),
    (3841, 4096, 3584): (79.6, 70.4, 68.7, 62.2, 307.1, 471.7, 153.3, 153.2, 513.9),
    (4096, 2048, 1024): (13.8, 13.8, 12.5, 12.8, 63.9, 89.9, 26.6, 25.7, 75.4),
    (4352, 4096, 16384): (377.0, 342.5, 338.7, 306.4, 1386.1, 2542.9, 765.9, 770.2, 2411.0),
    (16384, 2048, 51200): (2468.7, 2384.8, 2422.4, 1984.6, 8596.0, 13895.8, 4526.9, 4791.4, 19046.6),
}
"""(m, n, k) -> microseconds on `DEVICES`."""
BEST = {
    "b300-sxm-270gb": (12288, 18432, 1024, 1769.0),
    "mi325x": (13312, 10240, 8192, 784.9),
    "mi355x": (12288, 8192, 8192, 1565.0),
}
"""The best product that was measured (stas00/ml-engineering, compute/accelerator): m, n, k, TFLOP/s in bf16."""


ADDED = {
    "a100-pcie-80gb": {
        (4096, 8192, 8192): 1.031, (4096, 4096, 14336): 1.065, (4096, 8192, 28672): 1.056, (4096, 12288, 5120): 1.049,
    },
    "b200-sxm-180gb": {
        (2048, 8192, 28672): 1.128, (4096, 16384, 16384): 1.133, (4096, 8192, 28672): 1.076, (4096, 28672, 8192): 1.043,
        (4096, 16384, 13312): 1.124, (4096, 13312, 16384): 1.104,
    },
}  # fmt: skip
"""Device -> (rows, inputs, outputs) -> seconds of the weight's gradient, added in fp32, by the mean of those of the result and
of the input's gradient. Transformer Engine's products, measured by SimuMax (MooreThreads/SimuMax 4dcaae5, configs/system)."""


def seconds(name: str, m: int, n: int, k: int) -> float:
    """Seconds of a product in isolation: without the default stack's share of its rate, at the clock of a short loop."""
    facts = catalog.device_facts(name)
    isolated = facts.model_copy(update={"gemm": facts.gemm.model_copy(update={"sustained": 1.0, "older": 1.0})}).isolated()
    return gemm_seconds(Gemm("product", m, n, k), isolated, "bf16", 2)


def errors(name: str) -> list[float]:
    return [seconds(name, *shape) * 1e6 / row[DEVICES.index(name)] - 1 for shape, row in MEASURED.items()]


@pytest.mark.parametrize("name", DEVICES)
def test_products_take_what_was_measured(name: str) -> None:
    found = errors(name)
    assert median(map(abs, found)) <= 0.09
    assert max(map(abs, found)) <= 0.20


@pytest.mark.parametrize("name", ADDED)
def test_weight_gradients_that_are_added_take_longer_as_measured(name: str) -> None:
    device = catalog.device_facts(name).isolated()
    for (rows, inputs, outputs), measured in ADDED[name].items():
        gemm = Gemm("product", rows, outputs, inputs, casts=None)
        others = forward_seconds(gemm, device, "bf16", 2, "flash") + input_gradient_seconds(gemm, device, "bf16", 2, "flash")
        found = weight_gradient_seconds(gemm, device, "bf16", 2, added=6.0) / (others / 2)
        assert found == pytest.approx(measured, abs=0.06)


@pytest.mark.parametrize("name", BEST)
def test_no_product_is_faster_than_the_best_that_was_measured(name: str) -> None:
    m, n, k, best = BEST[name]
    rate = 2.0 * m * n * k / seconds(name, m, n, k) / 1e12
    assert 0.75 * best <= rate <= best
