"""Kernels and layers, modelled and measured: `python -m benchmarks kernels`, in a second.

The measurements are in `kernels.yaml`, with their sources: matrix products of training runs, layers on one device in one
software, layers with tensor parallelism, exchanges of tokens, and sends over one NIC. An error is modelled time / measured
time - 1 (of rates: measured / modelled - 1). Products and layers on one device run at the rates measured in isolation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import yaml

from benchmarks.collectives import Machine, options
from holmes_sim import validation
from sim.analytic.plan_costs import PlanCosts
from sim.formats import catalog
from sim.hardware.device_spec import DeviceSpec
from sim.kernels.formulas import attention_seconds, gemm_seconds, pass_seconds
from sim.plan.parallel_config import ParallelConfig
from sim.plan.under_stack import with_stack
from sim.units import GIGA, MICRO, MILLI, Seconds, parse
from sim.workload.kernels import Attention, Gemm
from sim.workload.model import PRECISION_BYTES

FILE = Path(__file__).with_name("kernels.yaml")
CASES = Path(__file__).parents[1] / "validation" / "activation_recomputation.yaml"
PASSES = (24, 4)
"""Values of a token that elementwise kernels of PyTorch without fused kernels move in a layer's forward: 24 h + 4 f. Counted so
that V100 and A100, whose products were measured elsewhere, agree; a guess."""
BACKWARD_PASSES = 1.75
"""Bytes of the backward of these kernels for each byte of the forward (`sim.kernels.formulas.PASS_BACKWARD`)."""
REFERENCE = "a100-sxm4-80gb"
"""The device to which others are compared: its curve was fitted to measured products."""


class LayerError(NamedTuple):
    """Error of the time that one more sequence takes in a layer: forward and backward."""

    model: str
    tokens: int
    forward: float
    backward: float


@cache
def _document() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return document


def product_errors(key: str) -> list[tuple[tuple[int, int, int], float]]:
    """((rows, columns, summed dimension), error) of the products of a "device precision", at the clock of a long run and with
    the newest libraries."""
    name, precision = key.split()
    device = catalog.device_facts(name).isolated()
    curves = tuple((word, replace(curve, older=1.0)) for word, curve in device.narrow_gemm)
    device = replace(device, narrow_gemm=curves, gemm=replace(device.gemm, older=1.0))
    nbytes = 1 if precision == "fp8" else PRECISION_BYTES[precision]
    return [
        ((m, n, k), gemm_seconds(Gemm("product", m, n, k), device, precision, nbytes) / (us * MICRO) - 1)
        for m, n, k, us in _document()["products"][key]
    ]


def _layer(shape: tuple[int, int, int, str], sequences: int, tokens: int, device: DeviceSpec, precision: str) -> list[Seconds]:
    """Forward and backward seconds of a layer without launches."""
    hidden, heads, width, kind = shape
    rows, nbytes = sequences * tokens, PRECISION_BYTES[precision]
    up = 2 * width if kind == "swiglu" else width
    products = [Gemm("product", rows, n, k) for n, k in ((3 * hidden, hidden), (hidden, hidden), (up, hidden), (hidden, width))]
    gradients = [Gemm("", *of) for one in products for of in ((one.m, one.k, one.n), (one.k, one.n, one.m))]
    core = Attention("core", sequences, heads, heads, hidden // heads, tokens)
    attention = "flash" if nbytes == 2 else "unfused"
    moved = pass_seconds(float(PASSES[0] * hidden + PASSES[1] * width) * rows * nbytes, device)
    return [
        sum(gemm_seconds(one, device, precision, nbytes) for one in multiplied)
        + attention_seconds(core, device, precision, nbytes, attention, backward)
        + (BACKWARD_PASSES if backward else 1.0) * moved
        for backward, multiplied in ((False, products), (True, gradients))
    ]


def layer_errors(key: str) -> list[LayerError]:
    """Errors of the layers of a "device precision"."""
    name, precision = key.split()
    device, found = catalog.device_facts(name).isolated(), []
    for model, tokens, *measured in _document()["layers"][key]:
        shape = tuple(_document()["models"][model])
        few, many = (_layer(shape, sequences, tokens, device, precision) for sequences in (1, 9))
        errors = [(b - a) / 8 / (ms * MILLI) - 1 for a, b, ms in zip(few, many, measured, strict=True)]
        found.append(LayerError(model, tokens, *errors))
    return found


def middle_error(layers: list[LayerError]) -> float:
    """Median error of forwards and of backwards, which count twice, as they take twice as long."""
    return median([one.forward for one in layers] + 2 * [one.backward for one in layers])


def parallel_layer_errors(stack: str) -> list[tuple[str, bool, float, float]]:
    """(recomputation, sequence parallelism, error of the forward, of the backward) of a layer of 22B on eight A100."""
    case = next(case for case in validation.read([CASES]) if "22b" in case.id)
    assert case.plan is not None
    found = []
    for recompute, sequence_parallel, *measured in _document()["layer_of_22b"]:
        config = replace(case.plan.config, recompute=recompute, sequence_parallel=sequence_parallel)
        plan = with_stack(validation.stack_of(case, stack)[1], replace(case.plan, config=config))
        seconds = PlanCosts(plan).at(0, (0,), (0,)).passes(1, False, False)
        forward, backward = (s / (ms * MILLI) - 1 for s, ms in zip(seconds, measured, strict=True))
        found.append((recompute, sequence_parallel, forward, backward))
    return found


def exchange_errors() -> list[tuple[int, float, float]]:
    """(ranks, error of the dispatch, of the combine): measured over modelled rate - 1."""
    machine = Machine("nvlink4-h800", "infiniband", parse("400 Gbit/s", "rate"), 8, 0.0, 1.0)
    found = []
    for ranks, *measured in _document()["exchanges"]:
        each = {"dp": ranks, "ep": ranks, "num_microbatches": (1,) * ranks}
        config = ParallelConfig(tp=1, pp=1, dispatcher="deepep", domain=8, **each)
        costs = options(machine, "all_to_all", ranks // 8, 8).values()
        errors = []
        for nbytes, rate in zip((1, 2), measured, strict=True):
            payload = 4096.0 * 7168 * nbytes * config.copies(256, 8, 8, 4)
            errors.append(rate * GIGA * min(cost.seconds(payload) for cost in costs) / payload - 1)
        found.append((ranks, *errors))
    return found


def send_error() -> float:
    """Error of the rate of a message between nodes, against the slower NICs of a node: measured over modelled - 1."""
    machine = Machine("nvlink5", "infiniband", parse("400 Gbit/s", "rate"), 8, 0.0, 1.0)
    ((cost),) = options(machine, "send_recv", 2, 8).values()
    return float(min(_document()["sends"]) * GIGA * cost.per_byte - 1)


def table() -> Iterator[str]:
    """Lines of Markdown tables."""
    yield "| products | number | median error | worst | bias |"
    yield "| --- " * 5 + "|"
    for key in _document()["products"]:
        for name, large in (("512 rows and more", True), ("fewer", False)):
            errors = [error for (m, n, _), error in product_errors(key) if (min(m, n) >= 512) is large]
            if errors:
                worst = max(errors, key=abs)
                mean = sum(errors) / len(errors)
                yield f"| {key}, {name} | {len(errors)} | {median(map(abs, errors)):.0%} | {worst:+.0%} | {mean:+.0%} |"
    yield ""
    yield "| layers on one device | number | forward | backward | both, in proportion to A100 |"
    yield "| --- " * 5 + "|"
    for key in _document()["layers"]:
        layers = layer_errors(key)
        ways = [one.forward for one in layers], [one.backward for one in layers]
        reference, beside = f"{REFERENCE} {key.split()[1]}", ""
        if reference in _document()["layers"]:
            beside = f"{(1 + middle_error(layers)) / (1 + middle_error(layer_errors(reference))) - 1:+.0%}"
        cells = " | ".join(f"{median(way):+.0%} ({min(way):+.0%} to {max(way):+.0%})" for way in ways)
        yield f"| {key} | {len(layers)} | {cells} | {beside} |"
    yield ""
    yield "| a layer of 22B, tp 8: constants | recompute | sequence parallel | forward | backward |"
    yield "| --- " * 5 + "|"
    for stack in ("default", "fitted"):
        for recompute, sequence_parallel, ahead, back in parallel_layer_errors(stack):
            yield f"| {stack} | {recompute} | {'yes' if sequence_parallel else 'no'} | {ahead:+.0%} | {back:+.0%} |"
    yield ""
    yield "| DeepEP, ranks | dispatch | combine |"
    yield "| --- " * 3 + "|"
    for ranks, dispatch, combine in exchange_errors():
        yield f"| {ranks} | {dispatch:+.0%} | {combine:+.0%} |"
    yield ""
    yield f"A send over one NIC of 400 Gbit/s against the slowest of eight by perftest: {send_error():+.0%}."


def show() -> None:
    """Print the tables."""
    for line in table():
        print(line, flush=True)
