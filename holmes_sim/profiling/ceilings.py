"""Rates that the device reaches in isolation: matrix products, memory bandwidth, attention.

Nominal rates are not used: the peak is the rate of the fastest measured product, the bandwidth that of the fastest pass over
memory (STREAM, McCalpin 1995, copy and add). Efficiencies are shares of these measured rates. Of several repetitions the
fastest counts, because a ceiling is the rate of an undisturbed device. All values are random: products of constants draw less
power, and were 10 % faster on an H100 (docs/profile.md).
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from holmes_sim.profiling import curve
from holmes_sim.profiling.curve import Product
from holmes_sim.profiling.machine import Machine, timed
from holmes_sim.torch_backend.buckets import PRECISIONS
from sim.hardware.device_spec import AttentionRates, GemmCurve
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
SMALL, REPEATED = {False: 512**3, True: 2048**3}, 20
"""Products with m n k below SMALL (CPU, GPU) take too little time to be measured one by one: REPEATED are timed together."""
BUFFER = {False: 128 * MEBI, True: 1024 * MEBI}
"""Bytes of a tensor that exceeds all caches, for a CPU (False) and a GPU (True)."""
CORES = {
    False: tuple(Attention("attention", 1, 8, 8, 64, length) for length in (256, 512, 1024)),
    True: tuple(Attention("attention", 16384 // length, 32, 32, 128, length) for length in (1024, 2048, 4096, 8192, 16384)),
}
"""Causal attention cores to measure on a CPU (False) and a GPU (True): sequences of several lengths."""
PASS = {False: (4096, 1024), True: (16384, 4096)}
"""Rows and columns of the elementwise kernels to measure on a CPU (False) and a GPU (True)."""


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Measured rates of a device at one precision.

    - `error`: mean of |log(curve / measured)| of the fitted curve over the products.
    - `attention`: shares of the peak reached in forward and backward, by length of the sequences.
    - `core`: the longest measured attention core.
    - `elementwise`: share of the memory bandwidth.
    - `spread`: median relative spread of the repetitions of the products.
    """

    precision: str
    peak: FlopsPerSecond
    memory_bandwidth: BytesPerSecond
    host_bandwidth: BytesPerSecond
    gemm: GemmCurve
    error: float
    attention: AttentionRates
    core: Attention
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
        _attention(machine, kind, peak, budget), CORES[machine.is_gpu][-1],
        _elementwise(machine, kind, bandwidth, budget), found, spread,
    )  # fmt: skip


def _products(machine: Machine, kind: torch.dtype, budget: Seconds, longest: Seconds) -> Iterator[Product]:
    for sides in (SQUARES, WIDE):
        for rows in THIN if sides is WIDE else (0,):
            for side in sides:
                x, weight = _filled(machine, kind, rows or side, side), _filled(machine, kind, side, side)
                times = REPEATED if (rows or side) * side * side < SMALL[machine.is_gpu] else 1
                work = functools.partial(functional.linear, x, weight)
                yield Product(rows or side, side, side, seconds := timed(machine, work, budget, times))
                if seconds.minimum > longest:
                    break


def _filled(machine: Machine, kind: torch.dtype, *shape: int) -> torch.Tensor:
    return torch.randn(shape, device=machine.torch_device).to(kind)


def _bandwidths(machine: Machine, nbytes: int, budget: Seconds) -> Iterator[BytesPerSecond]:
    a, b, c = (_filled(machine, torch.float32, nbytes // 4) for _ in range(3))
    yield 2.0 * nbytes / timed(machine, lambda: c.copy_(a), budget).minimum
    yield 3.0 * nbytes / timed(machine, lambda: torch.add(a, b, out=c), budget).minimum


def _host(machine: Machine, nbytes: int, budget: Seconds) -> BytesPerSecond:
    """Bandwidth from host memory to device memory, in one direction. For a CPU: of a copy."""
    target = _filled(machine, torch.float32, nbytes // 4)
    source = torch.ones(nbytes // 4, pin_memory=machine.is_gpu)
    return nbytes / timed(machine, lambda: target.copy_(source, non_blocking=True), budget).minimum


def _attention(machine: Machine, kind: torch.dtype, peak: FlopsPerSecond, budget: Seconds) -> AttentionRates:
    """Rates of causal attention, with FLOPs counted as in `sim.kernels.formulas`."""
    cores = CORES[machine.is_gpu]
    seconds = [_core_seconds(machine, kind, core, budget) for core in cores]
    lengths = [core.seq_len for core in cores]
    there, back = (
        rate_by_length(lengths, [flops * core.flops / (both[way] * peak) for core, both in zip(cores, seconds, strict=True)])
        for way, flops in enumerate((1.0, FLASH_BACKWARD))
    )
    return AttentionRates(there[0], back[0], there[1], back[1])


def _core_seconds(machine: Machine, kind: torch.dtype, core: Attention, budget: Seconds) -> tuple[Seconds, Seconds]:
    """Seconds of forward and backward of one attention core."""
    shape = core.batch, core.heads, core.seq_len, core.head_dim
    q, k, v = (_filled(machine, kind, *shape).requires_grad_() for _ in range(3))
    grad = _filled(machine, kind, *shape)

    def forward() -> torch.Tensor:
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    out = forward()

    def backward() -> None:
        torch.autograd.grad(out, (q, k, v), grad, retain_graph=True)

    return timed(machine, forward, budget).minimum, timed(machine, backward, budget).minimum


def rate_by_length(lengths: Sequence[int], shares: Sequence[float]) -> tuple[float, float]:
    """(share of long sequences, half length) of the curve E s / (s + h) with the least squared relative error of 1 / share.

    1 / share = 1 / E + (h / E) / s is linear. Shares that do not rise, and those that rise without an end, get a constant."""
    tokens, reached = np.array(lengths, float), np.array(shares)
    level, slope = np.linalg.lstsq(np.stack([reached, reached / tokens], axis=1), np.ones(len(tokens)), rcond=None)[0]
    if level <= 0 or slope < 0:
        level, slope = reached.sum() / (reached**2).sum(), 0.0
    return min(1 / float(level), 1.0), float(slope / level)


def _elementwise(machine: Machine, kind: torch.dtype, bandwidth: BytesPerSecond, budget: Seconds) -> float:
    """Share of the memory bandwidth of elementwise kernels: the median of a sum, GELU and LayerNorm into new memory."""
    rows, width = PASS[machine.is_gpu]
    x, y = (_filled(machine, kind, rows, width) for _ in range(2))
    nbytes = x.nbytes
    passes: tuple[tuple[float, Callable[[], object]], ...] = (
        (3.0, lambda: x + y),
        (2.0, lambda: functional.gelu(x)),
        (2.0, lambda: functional.layer_norm(x, (width,))),
    )
    rates = sorted(times * nbytes / timed(machine, work, budget).minimum for times, work in passes)
    return float(min(rates[1] / bandwidth, 1.0))
