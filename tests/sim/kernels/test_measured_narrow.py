"""Products in fp8 with scales by tensor and by block, and in nvfp4, against measured ones on Blackwell; microseconds.

Measured by NVIDIA aiconfigurator 095f58a, aic-core/src/aiconfigurator_core/systems/data/*/gemm/trtllm/1.3.0rc20 (Apache-2.0);
dtype fp8_block stands for MXFP8. The six shapes are products of large models. Those in fp8 are without the cast of their input,
which is in quantize/trtllm/1.3.0rc20 of the same folders; the others contain it."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

import pytest

from sim.errors import PlanError
from sim.formats import catalog
from sim.kernels.compute import head_seconds, layer_seconds
from sim.kernels.formulas import gemm_seconds, pass_seconds
from sim.plan.parallel_config import ParallelConfig
from sim.workload.kernels import Gemm
from sim.workload.workload import Workload
from tests import builders

SHAPES = (
    (2048, 6144, 4096), (4096, 12288, 4096), (8192, 8192, 8192), (4096, 5120, 5120), (8192, 10240, 8192), (16384, 8192, 8192),
)  # fmt: skip
MEASURED = {
    ("b200-sxm-180gb", "fp8"): (38.7, 141.8, 372.4, 77.7, 569.1, 689.2),
    ("b200-sxm-180gb", "mxfp8"): (43.8, 151.1, 411.3, 83.5, 504.8, 801.5),
    ("b200-sxm-180gb", "nvfp4"): (39.8, 117.6, 284.6, 78.3, 356.5, 582.0),
    ("gb200", "fp8"): (37.0, 145.0, 392.4, 84.4, 463.3, 810.9),
    ("gb200", "mxfp8"): (40.5, 144.3, 375.7, 80.7, 469.6, 734.5),
    ("gb200", "nvfp4"): (38.4, 115.9, 279.8, 79.0, 325.3, 513.4),
    ("b300-sxm-270gb", "fp8"): (37.0, 122.1, 307.1, 81.8, 459.0, 629.0),
    ("b300-sxm-270gb", "mxfp8"): (42.2, 140.5, 366.5, 77.6, 450.9, 739.7),
    ("b300-sxm-270gb", "nvfp4"): (39.8, 119.3, 244.3, 74.8, 296.5, 478.1),
    ("gb300", "fp8"): (32.7, 121.0, 308.7, 71.4, 378.5, 564.8),
    ("gb300", "mxfp8"): (37.3, 122.8, 340.3, 71.1, 418.7, 676.6),
    ("gb300", "nvfp4"): (38.8, 112.9, 227.6, 71.3, 271.0, 440.2),
}
"""(Device, precision) -> microseconds of `SHAPES`."""


@pytest.mark.parametrize(("name", "precision"), MEASURED)
def test_narrow_products_take_what_was_measured(name: str, precision: str) -> None:
    isolated = catalog.device_facts(name).isolated()
    curve = replace(isolated.curve_of(precision), sustained=1.0, older=1.0)
    device = replace(isolated, narrow_gemm=((precision, curve),))
    found = [gemm_seconds(Gemm("product", *shape), device, precision, 2) * 1e6 for shape in SHAPES]
    errors = [abs(seconds / measured - 1) for seconds, measured in zip(found, MEASURED[name, precision], strict=True)]
    assert median(errors) <= 0.15
    assert max(errors) <= 0.33


@pytest.mark.parametrize("precision", ["fp8", "mxfp8", "nvfp4"])
def test_logits_stay_in_bf16(precision: str) -> None:
    measured, model, config = catalog.device("gb300"), builders.model(hidden=4096), ParallelConfig()
    clock = measured.curve_of(precision).sustained
    device = replace(measured, gemm=replace(measured.gemm, sustained=clock, older=1.0))
    wide, narrow = (Workload(model, 8, 4096, precision=name) for name in ("bf16", precision))
    assert head_seconds(device, narrow, config)[0] == head_seconds(device, wide, config)[0]
    assert layer_seconds(device, narrow, config)[0] < layer_seconds(device, wide, config)[0]


def test_logits_are_narrow_where_the_software_multiplies_them_so() -> None:
    """Of two products of 4,096 x 51,200 x 4,096, the other passes stay: the difference is that of the curves, and the cast of
    the input."""
    device, model, config = catalog.device("gb300"), builders.model(hidden=4096, vocab=51200), ParallelConfig()
    work = Workload(model, 8, 4096, precision="mxfp8")
    usual, narrow = (head_seconds(replace(device, fp8_head=own), work, config)[0] for own in (False, True))
    logits = Gemm("logits", 4096, 51200, 4096)
    at_its_clock = replace(device, gemm=replace(device.gemm, sustained=0.93, older=1.0))
    saved = gemm_seconds(logits, at_its_clock, "bf16", 2) - gemm_seconds(logits, device, "mxfp8", 2)
    saved -= pass_seconds(4.0625 * 4096 * 4096, device)
    assert usual - narrow == pytest.approx(saved, rel=1e-9)
    assert saved > 0


def test_logits_of_an_fp8_run_are_products_at_the_clock_of_its_layers() -> None:
    """On H100 0.87 of the rate of short loops beside fp8; in bf16 0.9, and 0.89 of it with older libraries."""
    device, model, config = catalog.device("h100-sxm5-80gb"), builders.model(hidden=4096, vocab=51200), ParallelConfig()
    wide, narrow = (head_seconds(device, Workload(model, 8, 4096, precision=name), config)[0] for name in ("bf16", "fp8"))
    flops = 2 * 4096 * 51200 * 4096
    short = flops / (989e12 * device.gemm.compute_efficiency)
    assert wide - narrow == pytest.approx(short * (1 / (0.9 * 0.89) - 1 / 0.87), rel=1e-6)


def test_a_device_without_a_narrow_precision_says_what_it_has() -> None:
    with pytest.raises(PlanError, match="device h100-sxm5-80gb has no nvfp4 peak; it has bf16, fp16, fp32, fp8, tf32"):
        catalog.device("h100-sxm5-80gb").peak_of("nvfp4")
