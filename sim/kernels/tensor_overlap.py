"""Collectives of tensor parallelism beside the products of a layer: what travels, and the seconds of products that can hide it.

With `ParallelConfig.tp_overlap` a product and its collective are cut into tp parts (Transformer Engine, pytorch/module/base.py,
initialize_ub; MindSpeed's mc2). One part is exposed (`sim.kernels.payloads.tensor_collectives`); the others run beside as many
parts of the product, so no more of a collective is hidden than its product takes:

gather      before queries, keys and values, and before the up projection; in a backward of the gradients that the input
            gradients of the projection and of the down projection need
scatter     after the projection and the down projection; in a backward of the input gradients of the others, beside their
            weight gradients (Transformer Engine, ub_overlap_rs_dgrad: false), or beside the input gradients themselves where
            weight gradients run later
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from sim.hardware.device_spec import DeviceSpec
from sim.kernels import compute, payloads
from sim.kernels.formulas import forward_seconds, input_gradient_seconds, weight_gradient_seconds
from sim.kernels.recomputation import stops_early
from sim.plan import schedules
from sim.plan.parallel_config import ParallelConfig
from sim.units import Bytes, Seconds
from sim.workload.kernels import Attention, Gemm
from sim.workload.workload import Workload

COLUMN, ROW = ("attention in", "mlp in"), ("attention out", "mlp out")
"""Products whose input is gathered in a forward, and those whose result is scattered, of the two blocks of a layer."""


def applies(config: ParallelConfig) -> bool:
    """Whether collectives of tensor parallelism overlap products; they do with sequence parallelism only."""
    return config.tp_overlap and config.tp > 1 and config.sequence_parallel


def exchanges(
    workload: Workload, config: ParallelConfig, layers: int, backward: bool
) -> Iterator[tuple[str, str, str, Bytes, float]]:
    """(kind of action, kind of group, product with its direction, payload, count) of the hidden parts of the collectives of
    one microbatch on one stage. Direction: F, B, or R for a recomputed forward."""
    narrow, whole = payloads.gathered_activations(workload, config), payloads.activation_bytes(workload, config)
    for direction in ("R", "B") if backward else ("F",):
        counts, stopped = _counts(workload, config, layers, direction)
        gathered, scattered = (ROW, COLUMN) if direction == "B" else (COLUMN, ROW)
        for kind, nbytes, names in (("gather", narrow, gathered), ("scatter", whole, scattered)):
            for name in names:
                times = counts[name] - (stopped if (kind, name) == ("scatter", ROW[1]) else 0)
                if times:
                    yield kind, "tp", f"{name} {direction}", nbytes, _hidden(config) * times


def _hidden(config: ParallelConfig) -> float:
    """Share of a collective that runs beside its product, and of the product that can hide it."""
    return 1 - 1 / config.tp


def _counts(workload: Workload, config: ParallelConfig, layers: int, direction: str) -> tuple[dict[str, int], int]:
    """Product -> number of layers of a stage that compute it, and the number of those that stop before the last scatter."""
    attention = mlp = stopped = 0
    for number, alike in workload.alike(layers):
        again = payloads.repeated(alike, config, number, True) if direction == "R" else (number, number)
        attention += again[0]
        mlp += again[1] if _has_products(alike) else 0
        stopped += config.recomputed(number) if direction == "R" and stops_early(alike, config) else 0
    return {name: mlp if name.startswith("mlp") else attention for name in (*COLUMN, *ROW)}, stopped


def _has_products(workload: Workload) -> bool:
    """Whether the MLP of a layer has products that tensor-parallel ranks divide: a dense one, or shared experts."""
    return not workload.model.experts or workload.model.shared_ffn_hidden > 0


def windows(device: DeviceSpec, workload: Workload, config: ParallelConfig, layers: int) -> dict[str, Seconds]:
    """Product with its direction -> seconds of a stage's products that can hide all its exchanges of that name."""
    found: dict[str, Seconds] = {}
    splits = schedules.get(config.schedule).SPLITS_BACKWARD
    for number, alike in workload.alike(layers):
        attention, mlp = payloads.repeated(alike, config, number, True)
        for name, (forward, inputs, weights) in product_seconds(device, alike, config).items():
            again = mlp if name.startswith("mlp") else attention
            back = weights if name in COLUMN and not splits else inputs
            for direction, seconds in (("F", number * forward), ("R", again * forward), ("B", number * back)):
                key = f"{name} {direction}"
                found[key] = found.get(key, 0.0) + _hidden(config) * seconds
    return found


@functools.lru_cache(maxsize=4096)
def product_seconds(
    device: DeviceSpec, workload: Workload, config: ParallelConfig
) -> dict[str, tuple[Seconds, Seconds, Seconds]]:
    """Product -> seconds of (forward, input gradient, weight gradient) of one layer; those of routed experts are not listed.

    Where a measured layer is faster than the formulas, its products are by as much."""
    kernels = compute.rank_kernels(workload, config)
    core = next(index for index, kernel in enumerate(kernels) if isinstance(kernel, Attention))
    products = [(index, kernel) for index, kernel in enumerate(kernels) if isinstance(kernel, Gemm)]
    up = next((index for index, kernel in products if kernel.name == "up"), len(kernels))
    down = next((index for index, kernel in products if kernel.name == "down"), len(kernels))
    sets = {
        "attention in": [kernel for index, kernel in products if index < core],
        "attention out": [kernel for _, kernel in products if kernel.name == "projection"],
        "mlp in": [kernel for index, kernel in products if index == up],
        "mlp out": [kernel for index, kernel in products if index == down],
    }
    if not _has_products(workload):
        sets |= {"mlp in": [], "mlp out": []}
    precision, nbytes = workload.precision, workload.bytes_per_value
    added = compute.accumulated(device, workload, config) if device.fuses_accumulation(precision) else 0.0
    whole = sum(forward_seconds(kernel, device, precision, nbytes, config.attention) for kernel in kernels)
    scale = min(compute.layer_parts(device, workload, config)[0] / whole, 1.0)
    return {
        name: (
            scale * sum(forward_seconds(kernel, device, precision, nbytes, config.attention) for kernel in own),
            scale * sum(input_gradient_seconds(kernel, device, precision, nbytes, config.attention) for kernel in own),
            scale * sum(weight_gradient_seconds(kernel, device, precision, nbytes, added) for kernel in own),
        )
        for name, own in sets.items()
    }
