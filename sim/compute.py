"""Seconds of compute on a device: kernels by shape, layers by kernels, the optimizer by bytes.

A matrix product takes launch + max(FLOPs x padding^w / (peak x c), bytes / (bandwidth x m)) with the device's fitted curve
(`sim.cluster.GemmCurve`); the forms and constants were fitted to measured bf16 products, see the catalogue. The fused attention
core takes its causal FLOPs at the device's attention efficiency; elementwise passes take their bytes over the memory
bandwidth. Backward: two products per product (gradients of input and of weight), 2.5 times the FLOPs of fused attention
(scores are recomputed: Dao, arXiv 2307.08691, section 3.1), 1.75 times the bytes of a pass (`PASS_BACKWARD`), and
the gradient accumulated in memory. Recomputation runs the forward again: all of it (full) or the attention core (selective).
"""

from __future__ import annotations

import functools
import math

from sim.cluster import DeviceSpec
from sim.model import Attention, Gemm, Kernel, Model, Workload, embedding_kernels, head_kernels, layer_kernels
from sim.plan import GRADIENT_BYTES, ParallelConfig
from sim.units import MICRO, Seconds

PASS_LAUNCH: Seconds = 3 * MICRO
"""Fixed time of a memory-bound kernel (NVIDIA aiconfigurator 095f58a, systems/*.yaml: 3 us beside 0.8 of the bandwidth)."""
PASS_BACKWARD = 1.75
"""Bytes of a pass's backward over its forward, counted on the passes of a GPT layer in units of s b h values: norms 6 / 4
(gradient and input read, gradient written), heads 9 / 6 and activation 16 / 8 (both with a bias gradient), dropout + residual
13 / 7 (mask applied, bias gradient, two branches added): 44 / 25."""
FLASH_BACKWARD = 2.5
UNFUSED_FORWARD_BYTES = 11.0
"""Bytes per attention score that an unfused core moves, 2 bytes a value: write, softmax and dropout in and out, mask, read."""
ADAM_BYTES = 34.0
"""Bytes moved per parameter by a mixed-precision Adam step: gradient read twice (norm, update), fp32 weight and two moments
read and written, 2-byte weight written: 2 x 4 + 3 x 8 + 2."""


def gemm_seconds(gemm: Gemm, device: DeviceSpec, precision: str, nbytes: int) -> Seconds:
    """Seconds of a (batch of) matrix products on a device."""
    curve = device.gemm
    rows, columns = curve.tile
    tiles = math.ceil(gemm.m / rows) * math.ceil(gemm.n / columns)
    waves = math.ceil(tiles / device.compute_units)
    padding = max(waves * device.compute_units * rows * columns / (gemm.m * gemm.n), 1.0)
    flops: float = 2.0 * gemm.m * gemm.n * gemm.k * padding**curve.wave_exponent
    moved = float(gemm.m * gemm.k + gemm.k * gemm.n + gemm.m * gemm.n) * nbytes
    busy = max(
        flops / (device.peak_of(precision) * curve.compute_efficiency),
        moved / (device.memory_bandwidth * curve.memory_efficiency),
    )
    return gemm.count * (curve.launch + busy)


def pass_seconds(moved: float, device: DeviceSpec) -> Seconds:
    """Seconds to move bytes through memory in one elementwise pass."""
    return PASS_LAUNCH + moved / (device.memory_bandwidth * device.elementwise_efficiency)


def attention_seconds(core: Attention, device: DeviceSpec, precision: str, kind: str, backward: bool) -> Seconds:
    """Seconds of the attention core, fused ("flash") or as two products with softmax between ("unfused")."""
    dtype = "fp16" if precision == "fp16" else "bf16"
    peak = device.peak_of(dtype if precision in ("fp16", "bf16", "fp8") else precision)
    if kind == "flash":
        share = device.attention_backward if backward else device.attention_forward
        return (FLASH_BACKWARD if backward else 1.0) * core.flops / (peak * share)
    product = 4.0 * core.scores * core.head_dim / (peak * device.gemm.compute_efficiency)
    moved = UNFUSED_FORWARD_BYTES * core.scores
    return (2.0 if backward else 1.0) * product + pass_seconds((PASS_BACKWARD if backward else 1.0) * moved, device)


def _forward(kernel: Kernel, device: DeviceSpec, precision: str, nbytes: int, attention: str) -> Seconds:
    if isinstance(kernel, Gemm):
        return gemm_seconds(kernel, device, precision, nbytes)
    if isinstance(kernel, Attention):
        return attention_seconds(kernel, device, precision, attention, False)
    return pass_seconds(kernel.moved, device)


def _backward(kernel: Kernel, device: DeviceSpec, precision: str, nbytes: int, attention: str) -> Seconds:
    if isinstance(kernel, Gemm):
        inputs = Gemm(kernel.name, kernel.m, kernel.k, kernel.n, kernel.count)
        weights = Gemm(kernel.name, kernel.k, kernel.n, kernel.m, kernel.count)
        return gemm_seconds(inputs, device, precision, nbytes) + gemm_seconds(weights, device, precision, nbytes)
    if isinstance(kernel, Attention):
        return attention_seconds(kernel, device, precision, attention, True)
    return pass_seconds(PASS_BACKWARD * kernel.moved, device)


def _both(
    kernels: tuple[Kernel, ...], parameters: float, device: DeviceSpec, workload: Workload, config: ParallelConfig
) -> tuple[Seconds, Seconds]:
    """Forward and backward seconds of kernels that hold `parameters` on this rank, recomputation included in the backward."""
    precision, nbytes = workload.precision, workload.bytes_per_value
    fw = sum(_forward(k, device, precision, nbytes, config.attention) for k in kernels)
    bw = sum(_backward(k, device, precision, nbytes, config.attention) for k in kernels)
    accumulated = 2.0 * GRADIENT_BYTES[config.gradient_precision] * parameters
    return fw, bw + pass_seconds(accumulated, device)


def rank_kernels(workload: Workload, config: ParallelConfig) -> tuple[Kernel, ...]:
    """Forward kernels of one layer and one microbatch on one rank."""
    size, sliced = config.microbatch_size, config.sequence_parallel
    of_model = workload.model, size, workload.seq_len, config.tp, sliced, workload.bytes_per_value
    return layer_kernels(*of_model, config.cp, config.ep)


@functools.lru_cache(maxsize=4096)
def ring_seconds(device: DeviceSpec, workload: Workload, config: ParallelConfig, backward: bool) -> Seconds:
    """Seconds of one layer's attention core that can hide the exchange of keys and values among cp ranks.

    A rank computes on its own part while the next one travels, in cp equal steps of which the last has nothing left to wait
    for (Transformer Engine, pytorch context_parallel.py, AttnFuncWithCPAndKVP2P; `cp_comm_type` p2p of Megatron-Core).
    """
    cores = [kernel for kernel in rank_kernels(workload, config) if isinstance(kernel, Attention)]
    seconds = sum(attention_seconds(core, device, workload.precision, config.attention, backward) for core in cores)
    return seconds * (config.cp - 1) / config.cp


@functools.lru_cache(maxsize=4096)
def layer_seconds(device: DeviceSpec, workload: Workload, config: ParallelConfig) -> tuple[Seconds, Seconds]:
    """(forward, backward) seconds of one layer and one microbatch on one rank, communication left out."""
    model = workload.model
    kernels = rank_kernels(workload, config)
    experts_elsewhere = model.expert_parameters * (1 - 1 / config.ep)
    forward, backward = _both(kernels, (model.layer_parameters - experts_elsewhere) / config.tp, device, workload, config)
    if config.recompute == "full":
        backward += forward
    elif config.recompute == "selective" and config.attention == "unfused":
        core = [k for k in kernels if isinstance(k, Attention)]
        backward += sum(_forward(k, device, workload.precision, workload.bytes_per_value, "unfused") for k in core)
    return forward, backward


@functools.lru_cache(maxsize=4096)
def embedding_seconds(device: DeviceSpec, workload: Workload, config: ParallelConfig) -> tuple[Seconds, Seconds]:
    """(forward, backward) seconds of the input embedding for one microbatch."""
    kernels = embedding_kernels(workload.model, config.microbatch_size, workload.seq_len // config.cp, workload.bytes_per_value)
    return _both(kernels, 0.0, device, workload, config)


@functools.lru_cache(maxsize=4096)
def head_seconds(device: DeviceSpec, workload: Workload, config: ParallelConfig) -> tuple[Seconds, Seconds]:
    """(forward, backward) seconds of final norm, logits and loss for one microbatch."""
    model: Model = workload.model
    kernels = head_kernels(model, config.microbatch_size, workload.seq_len // config.cp, config.tp, workload.bytes_per_value)
    return _both(kernels, model.head_parameters / config.tp, device, workload, config)


def optimizer_seconds(device: DeviceSpec, parameters: float) -> Seconds:
    """Seconds of the Adam step over the parameters whose state this rank holds."""
    return pass_seconds(ADAM_BYTES * parameters, device)
