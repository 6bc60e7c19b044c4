"""Collectives of tensor parallelism beside the products of a layer: what travels, and the seconds of products that can hide it.

With `ParallelConfig.tp_overlap` no more of a collective is hidden than the product beside it takes. Transformer Engine does it
in three ways (initialize_ub of pytorch/module/base.py, its defaults), which stand for other software too (MindSpeed's mc2):

ring        gather before queries, keys and values and before the up projection, and in a backward before the input gradients of
            the projection and of the down projection: of tp parts one is there, and a part of the product is computed while the
            next one travels
pipeline    scatter after the projection and the down projection of a forward: `payloads.SCATTERED_PARTS` parts, the last of
            which is exposed (`payloads.tensor_collectives`)
bulk        in a backward, of the products of rings: gather their input again beside their input gradients, and scatter these
            beside their weight gradients

With `ParallelConfig.tp_backward_overlap` alone only the scatters of the last way do, as NCCL's collectives on a stream of their
own (`payloads.scatters_beside_weights`).

Where a schedule defers weight gradients, a scatter is taken to find one of another microbatch, so that input and weight
gradients together take as long as a whole backward and the planner's bounds hold (`planner.space.shape.split_backward`). No
software says otherwise: Transformer Engine refuses user buffers with `delay_wgrad_compute` (pytorch/module/linear.py,
NotImplementedError).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from sim.hardware.device_spec import DeviceSpec
from sim.kernels import compute, payloads
from sim.kernels.formulas import forward_seconds, input_gradient_seconds, weight_gradient_seconds
from sim.kernels.recomputation import stops_early
from sim.kernels.sequence_copies import scatters_sums
from sim.plan.parallel_config import ParallelConfig
from sim.units import Bytes, Seconds
from sim.workload.kernels import Attention, Gemm
from sim.workload.workload import Workload

COLUMN, ROW = ("attention in", "mlp in"), ("attention out", "mlp out")
"""Products whose input is gathered in a forward, and those whose result is scattered, of the two blocks of a layer."""
AGAIN = ("attention in again", "mlp in again")
"""Products of `COLUMN` whose input is gathered again in a backward, for the weight gradients."""
PIPELINED = 1 - 1 / payloads.SCATTERED_PARTS
"""Share of a scatter of a forward that runs beside its product."""


def is_whole(config: ParallelConfig) -> bool:
    """Whether all collectives of tensor parallelism in layers overlap products; they do with sequence parallelism only."""
    return config.tp_overlap and config.tp > 1 and config.sequence_parallel


def applies(config: ParallelConfig) -> bool:
    """Whether collectives of tensor parallelism overlap products: all, or the scatters of input gradients alone."""
    return is_whole(config) or payloads.scatters_beside_weights(config)


def exchanges(
    workload: Workload, config: ParallelConfig, layers: int, backward: bool
) -> Iterator[tuple[str, str, str, Bytes, float]]:
    """(kind of action, kind of group, product with its direction, payload, count) of the hidden parts of the collectives of
    one microbatch on one stage. Direction: F, B, or R for a recomputed forward."""
    narrow, whole = payloads.gathered_activations(workload, config), payloads.activation_bytes(workload, config)
    for direction in ("R", "B") if backward else ("F",):
        counts, stopped = _counts(workload, config, layers, direction)
        if not config.tp_overlap:
            found = [("scatter", name, 1.0) for name in COLUMN] if direction == "B" else []
        elif direction == "B":
            copies = 2.0 if workload.precision in payloads.GATHERED_TWICE else 1.0
            found = [("gather", name, copies) for name in ROW] + [("gather", name, 1.0) for name in AGAIN]
            found += [] if scatters_sums(config) else [("scatter", name, 1.0) for name in COLUMN]
        else:
            found = [("gather", name, 1.0) for name in COLUMN] + [("scatter", name, PIPELINED) for name in ROW]
        for kind, name, share in found:
            times = counts[name.removesuffix(" again")] - (stopped if name == ROW[1] and direction == "R" else 0)
            if times:
                yield kind, "tp", f"{name} {direction}", narrow if kind == "gather" else whole, share * times


def _counts(workload: Workload, config: ParallelConfig, layers: int, direction: str) -> tuple[dict[str, int], int]:
    """Product -> number of layers of a stage that compute it, and the number of those that stop before the last scatter."""
    attention = mlp = stopped = 0
    for number, alike in workload.alike(layers):
        again = payloads.repeated(alike, config, number, True) if direction == "R" else (number, number)
        attention += again[0]
        mlp += again[1] if _has_products(alike) else 0
        stopped += again[1] if direction == "R" and stops_early(alike, config) else 0
    return {name: mlp if name.startswith("mlp") else attention for name in (*COLUMN, *ROW)}, stopped


def _has_products(workload: Workload) -> bool:
    """Whether the MLP of a layer has products that tensor-parallel ranks divide: a dense one, or shared experts."""
    return not workload.model.experts or workload.model.shared_ffn_hidden > 0


def windows(device: DeviceSpec, workload: Workload, config: ParallelConfig, layers: int) -> dict[str, Seconds]:
    """Product with its direction -> seconds of a stage's products that can hide all its exchanges of that name."""
    found: dict[str, Seconds] = {}
    ring = 1 - 1 / config.tp
    for number, alike in workload.alike(layers):
        attention, mlp = payloads.repeated(alike, config, number, True)
        for name, (forward, inputs, weights) in product_seconds(device, alike, config).items():
            again, ahead = mlp if name.startswith("mlp") else attention, ring if name in COLUMN else PIPELINED
            own = {"F": number * ahead * forward, "R": again * ahead * forward}
            if name in ROW:
                own["B"] = number * ring * inputs
            else:
                own |= {"B": number * weights, "again B": number * inputs}
            for direction, seconds in own.items():
                key = f"{name} {direction}"
                found[key] = found.get(key, 0.0) + seconds
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
