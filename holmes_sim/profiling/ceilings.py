"""Rates that the device reaches in isolation: matrix products, memory bandwidth, attention.

Nominal rates are not used: the peak is the rate of the fastest measured product, the bandwidth that of the fastest pass over
memory (STREAM, McCalpin 1995, copy and add). Efficiencies are shares of these measured rates. Of several repetitions the
fastest counts, because a ceiling is the rate of an undisturbed device.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch.nn import functional

from holmes_sim.profiling import curve
from holmes_sim.profiling.curve import Product
from holmes_sim.profiling.machine import Machine, timed
from holmes_sim.torch_backend.buckets import PRECISIONS
from sim.hardware.device_spec import GemmCurve
from sim.kernels.formulas import FLASH_BACKWARD
from sim.units import MEBI, BytesPerSecond, FlopsPerSecond, Seconds
from sim.workload.kernels import Attention

BUDGET: Seconds = 0.5
"""Seconds of measurement for each shape."""
LONGEST: Seconds = 0.25
"""Seconds for one product, above which larger products of the same kind are skipped."""
SQUARES = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
THIN = (1, 16, 64)
WIDE = (1024, 4096)
"""Sides of square products (SQUARES); rows (THIN) and weight sides (WIDE) of thin products, which are bound by memory
bandwidth."""
SMALL, REPEATED = 512**3, 20
"""Products with m n k below SMALL take too little time to be measured one by one: REPEATED of them are timed together."""
BUFFER = {False: 128 * MEBI, True: 1024 * MEBI}
"""Bytes of a tensor that exceeds all caches, for a CPU (False) and a GPU (True)."""
CORE = Attention("attention", 1, 8, 8, 64, 1024)


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Measured rates of a device at one precision.

    - `error`: mean of |log(curve / measured)| of the fitted curve over the products.
    - `attention`: shares of the peak reached in forward and backward.
    - `elementwise`: share of the memory bandwidth.
    - `spread`: median relative spread of the repetitions of the products.
    """

    precision: str
    peak: FlopsPerSecond
    memory_bandwidth: BytesPerSecond
    host_bandwidth: BytesPerSecond
    gemm: GemmCurve
    error: float
    attention: tuple[float, float]
    elementwise: float
    products: tuple[Product, ...]
    spread: float


def measure(machine: Machine, precision: str, budget: Seconds = BUDGET, longest: Seconds = LONGEST) -> Ceilings:
    """Measure all rates of a device. `budget` and `longest` as BUDGET and LONGEST."""
    kind, memory = PRECISIONS[precision], BUFFER[machine.is_gpu]
    found = tuple(_products(machine, kind, budget, longest))
    peak = max(product.flops / product.seconds.minimum for product in found)
    bandwidth = max(_bandwidths(machine, memory, budget))
    fitted, error = curve.fit(found, peak, bandwidth, kind.itemsize, machine.compute_units, machine.is_gpu)
    spread = statistics.median(product.seconds.relative_spread for product in found)
    return Ceilings(
        precision, peak, bandwidth, _host(machine, memory, budget), fitted, error,
        _attention(machine, kind, peak, budget), _elementwise(machine, kind, bandwidth, budget), found, spread,
    )  # fmt: skip


def _products(machine: Machine, kind: torch.dtype, budget: Seconds, longest: Seconds) -> Iterator[Product]:
    for sides in (SQUARES, WIDE):
        for rows in THIN if sides is WIDE else (0,):
            for side in sides:
                x, weight = _filled(machine, kind, rows or side, side), _filled(machine, kind, side, side)
                times = REPEATED if (rows or side) * side * side < SMALL else 1
                work = functools.partial(functional.linear, x, weight)
                yield Product(rows or side, side, side, seconds := timed(machine, work, budget, times))
                if seconds.minimum > longest:
                    break


def _filled(machine: Machine, kind: torch.dtype, *shape: int) -> torch.Tensor:
    return torch.ones(shape, dtype=kind, device=machine.torch_device)


def _bandwidths(machine: Machine, nbytes: int, budget: Seconds) -> Iterator[BytesPerSecond]:
    a, b, c = (_filled(machine, torch.float32, nbytes // 4) for _ in range(3))
    yield 2.0 * nbytes / timed(machine, lambda: c.copy_(a), budget).minimum
    yield 3.0 * nbytes / timed(machine, lambda: torch.add(a, b, out=c), budget).minimum


def _host(machine: Machine, nbytes: int, budget: Seconds) -> BytesPerSecond:
    """Bandwidth from host memory to device memory, in one direction. For a CPU: of a copy."""
    target = _filled(machine, torch.float32, nbytes // 4)
    source = torch.ones(nbytes // 4, pin_memory=machine.is_gpu)
    return nbytes / timed(machine, lambda: target.copy_(source, non_blocking=True), budget).minimum


def _attention(machine: Machine, kind: torch.dtype, peak: FlopsPerSecond, budget: Seconds) -> tuple[float, float]:
    """Shares of the peak in forward and backward of causal attention, with FLOPs counted as in `sim.kernels.formulas`."""
    shape = CORE.batch, CORE.heads, CORE.seq_len, CORE.head_dim
    q, k, v = (torch.randn(shape, device=machine.torch_device).to(kind).requires_grad_() for _ in range(3))
    grad = _filled(machine, kind, *shape)

    def forward() -> torch.Tensor:
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    out = forward()

    def backward() -> None:
        torch.autograd.grad(out, (q, k, v), grad, retain_graph=True)

    there, back = (timed(machine, work, budget).minimum for work in (forward, backward))
    return min(CORE.flops / (there * peak), 1.0), min(FLASH_BACKWARD * CORE.flops / (back * peak), 1.0)


def _elementwise(machine: Machine, kind: torch.dtype, bandwidth: BytesPerSecond, budget: Seconds) -> float:
    """Share of the memory bandwidth of elementwise kernels: the median of a sum, GELU and LayerNorm into new memory."""
    rows, width = 4096, 1024
    x, y = (_filled(machine, kind, rows, width) for _ in range(2))
    nbytes = x.nbytes
    passes: tuple[tuple[float, Callable[[], object]], ...] = (
        (3.0, lambda: x + y),
        (2.0, lambda: functional.gelu(x)),
        (2.0, lambda: functional.layer_norm(x, (width,))),
    )
    rates = sorted(times * nbytes / timed(machine, work, budget).minimum for times, work in passes)
    return float(min(rates[1] / bandwidth, 1.0))
