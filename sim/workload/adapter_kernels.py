"""Kernels of a layer with adapters (`sim.workload.adapter`), made from those of the layer without them.

A frozen product has no gradient of its weight. Its input is kept where an adapter needs it: for the gradient of A. The output
of A is kept for that of B. Software computes an adapter in kernels of its own (PEFT, src/peft/tuners/lora/layer.py: result +
lora_B(lora_A(x)) * scaling): both products, the scaling, and the sum. The scaling reads and writes the outputs, the sum reads
two of that size and writes one: 5 passes over the outputs. Backward: the gradient is scaled (2 over the outputs), and the
gradient of the input is added to that of the base (3 over the inputs). Other software has a multiple of these (`adapter` of
`sim.hardware.stack.PASSES`).

Base weights in 4 bits are written out at full width before each product, in forward and backward, and not kept (arXiv
2305.14314, equation 5 and section 3; bitsandbytes, MatMul4Bit): a pass that reads the stored bytes and writes the others.

Under tensor parallelism the matrix at the divided side of the base is divided, and the other one is whole on each rank
(`Adapter.layer_parameters`). What a row-parallel adapter gives is added before the sum among the ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sim.workload.adapter import PRODUCTS, ROW_PARALLEL, Adapter
from sim.workload.kernels import ADAPTER_SUM, Gemm, Kernel, LayerSharding, Pass
from sim.workload.model import Model


def frozen(kernels: tuple[Kernel, ...]) -> tuple[Kernel, ...]:
    """The kernels with frozen products, none of which keeps its input."""
    return tuple(replace(one, frozen=True, saved=0.0) if isinstance(one, Gemm) else one for one in kernels)


def with_adapters(
    kernels: tuple[Kernel, ...], model: Model, adapter: Adapter, sharding: LayerSharding, nbytes: int
) -> tuple[Kernel, ...]:
    """The kernels of one layer (`layer_kernels`) with frozen products, and the adapters behind them."""
    return tuple(one for kernel in kernels for one in _adapted(kernel, model, adapter, sharding, nbytes))


def _adapted(kernel: Kernel, model: Model, adapter: Adapter, sharding: LayerSharding, nbytes: int) -> Iterator[Kernel]:
    if not isinstance(kernel, Gemm) or kernel.name not in PRODUCTS.values():
        yield kernel
        return
    if adapter.base_precision:
        written = kernel.k * kernel.n * (adapter.base_bytes(nbytes) + nbytes)
        yield Pass("dequantise", written, backward=written)
    own = [(inputs, outputs) for _, product, inputs, outputs in adapter.modules(model) if product == kernel.name]
    kept = own or kernel.name == "projection"  # fused attention keeps its output, which is the input of the projection
    yield replace(kernel, frozen=True, saved=kernel.saved if kept else 0.0)
    t, row = sharding.tp, kernel.name in ROW_PARALLEL
    for inputs, outputs in own:
        yield from _adapter(kernel.m, inputs // t if row else inputs, outputs if row else outputs // t, adapter.r, nbytes)


def _adapter(tokens: int, inputs: int, outputs: int, r: int, nbytes: int) -> Iterator[Kernel]:
    """Both products of an adapter, and its sum with the base's output; A's input is kept as that of the base."""
    yield Gemm("adapter A", tokens, r, inputs, thin=True)
    yield Gemm("adapter B", tokens, outputs, r, saved=float(tokens * r * nbytes), thin=True)
    entered, values = (float(tokens * width * nbytes) for width in (inputs, outputs))
    yield Pass(ADAPTER_SUM, 5.0 * values, backward=2.0 * values + 3.0 * entered)
