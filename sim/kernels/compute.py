"""Seconds of compute on a device: kernels by shape, layers by kernels, the optimizer by bytes.

A matrix product takes launch + max(FLOPs x padding^w / (peak x c), bytes / (bandwidth x m)) with the device's fitted curve
(`sim.hardware.device_spec.GemmCurve`); the forms and constants were fitted to measured bf16 products, see the catalogue. The
fused attention core takes its causal FLOPs at the device's attention efficiency; elementwise passes take their bytes over the
memory bandwidth. Backward: two products per product (gradients of input and of weight), 2.5 times the FLOPs of fused attention
(scores are recomputed: Dao, arXiv 2307.08691, section 3.1), 1.75 times the bytes of a pass (`PASS_BACKWARD`), and the gradient
added to what was accumulated (read once as it came, read and written once as it is kept: the hook on a parameter in
Megatron-LM, megatron/core/distributed). Recomputation runs the forward again: all of it (full) or the attention core
(selective)."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from sim.hardware.device_spec import DeviceSpec
from sim.hardware.measured import MeasuredRow, lookup
from sim.plan.parallel_config import GRADIENT_BYTES, ParallelConfig
from sim.units import MICRO, Bytes, Flops, Seconds
from sim.workload.kernels import Attention, Gemm, Kernel, LayerSharding, embedding_kernels, head_kernels, layer_kernels
from sim.workload.workload import Workload

PASS_LAUNCH: Seconds = 3 * MICRO
"""Fixed time of a memory-bound kernel (NVIDIA aiconfigurator 095f58a, systems/*.yaml: 3 us beside 0.8 of the bandwidth)."""
PASS_BACKWARD = 1.75
"""Bytes of a pass's backward over its forward, counted on the passes of a GPT layer in units of s b h values: norms 6 / 4
(gradient and input read, gradient written), heads 9 / 6 and activation 16 / 8 (both with a bias gradient), dropout + residual
13 / 7 (mask applied, bias gradient, two branches added): 44 / 25."""
CUDA_CORE_EFFICIENCY = 0.93
"""Share of the fp32 peak that products without tensor cores reach. Fitted to Sailor's layer profiles (eth-easl/sailor):
OPT-30B in
fp32 on A100, 145 ms forward at one sequence of 2,048, and GPT-Neo 2.7B on V100."""
TENSOR_CORE_ALIGNMENT = 16
"""Bytes of which rows must be multiples to reach tensor cores (NVIDIA, Matrix Multiplication Background User's Guide, 2.2)."""
UNALIGNED_RATE = 0.5
"""Share of the fp32 peak that batched attention products reach where head_dim is not aligned. Fitted to one pair of runs:
BLOOM's search, hidden 13,824 with 128 heads (head_dim 108) against 64 (216), 162.7 against 121.3 s a step."""
FLASH_BACKWARD = 2.5
LAUNCH_BACKWARD = 1.3
UNFUSED_PASSES = {2: (6, 9), 4: (8, 18)}
"""Times that an unfused core moves its scores through memory, forward and backward, by bytes of a value. Counted at 2 bytes:
product out, softmax in and out, dropout in and out, product in; backward: product out, dropout in and out, softmax twice in and
once out, products three times in. At 4 bytes Megatron-LM's fused softmax does not serve
(megatron/core/fusions/fused_softmax.py), so the mask is a pass of its own: 8 forward, met by Sailor's layer profiles
(OPT-350M on GH200 and A100-40); backward would be 11 by count, 18 is fitted to those and to GPT-Neo 2.7B on A100. One byte
more a score is dropout's mask."""
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
    moved = gemm.values * nbytes
    share = CUDA_CORE_EFFICIENCY if precision == "fp32" else curve.compute_efficiency
    busy = max(
        flops / (device.peak_of(precision) * share),
        moved / (device.memory_bandwidth * curve.memory_efficiency),
    )
    return gemm.count * (curve.launch + busy)


def pass_seconds(moved: float, device: DeviceSpec) -> Seconds:
    """Seconds to move bytes through memory in one elementwise pass."""
    return PASS_LAUNCH + moved / (device.memory_bandwidth * device.elementwise_efficiency)


def attention_work(core: Attention, nbytes: int, kind: str, backward: bool) -> tuple[Flops, Bytes]:
    """FLOPs that the attention core runs, and bytes that it moves: of a fused one what goes in and comes out.

    Fused: queries, keys and values in, values out; backward also the values and their gradient in, and the gradients of
    queries, keys and values out (Dao, arXiv 2307.08691, algorithms 1 and 2). Unfused: `UNFUSED_PASSES`.
    """
    if kind == "flash":
        queries = core.scores / core.seq_len * core.head_dim
        keys_and_values = 2.0 * core.batch * core.kv_heads * core.seq_len * core.head_dim
        moved = 4.0 * queries + 2.0 * keys_and_values if backward else 2.0 * queries + keys_and_values
        return (FLASH_BACKWARD if backward else 1.0) * core.flops, moved * nbytes
    products = (2.0 if backward else 1.0) * (4.0 * core.scores * core.head_dim)
    return products, (UNFUSED_PASSES[nbytes][backward] * nbytes + 1.0) * core.scores


def attention_seconds(core: Attention, device: DeviceSpec, precision: str, nbytes: int, kind: str, backward: bool) -> Seconds:
    """Seconds of the attention core, fused ("flash") or as two products with softmax between ("unfused")."""
    dtype = "fp16" if precision == "fp16" else "bf16"
    peak = device.peak_of(dtype if precision in ("fp16", "bf16", "fp8") else precision)
    flops, moved = attention_work(core, nbytes, kind, backward)
    if kind == "flash":
        return flops / (peak * (device.attention_backward if backward else device.attention_forward))
    rate = peak * device.gemm.compute_efficiency
    if nbytes < 4 and core.head_dim * nbytes % TENSOR_CORE_ALIGNMENT:
        rate = min(rate, UNALIGNED_RATE * device.peak_of("fp32"))
    return flops / rate + pass_seconds(moved, device)


def _forward(kernel: Kernel, device: DeviceSpec, precision: str, nbytes: int, attention: str) -> Seconds:
    if isinstance(kernel, Gemm):
        return gemm_seconds(kernel, device, precision, nbytes)
    if isinstance(kernel, Attention):
        return attention_seconds(kernel, device, precision, nbytes, attention, False)
    return pass_seconds(kernel.moved, device)


def _input_gradient(kernel: Kernel, device: DeviceSpec, precision: str, nbytes: int, attention: str) -> Seconds:
    if isinstance(kernel, Gemm):
        return gemm_seconds(Gemm(kernel.name, kernel.m, kernel.k, kernel.n, kernel.count), device, precision, nbytes)
    if isinstance(kernel, Attention):
        return attention_seconds(kernel, device, precision, nbytes, attention, True)
    return pass_seconds(PASS_BACKWARD * kernel.moved, device)


def _weight_gradient(kernel: Kernel, device: DeviceSpec, precision: str, nbytes: int) -> Seconds:
    if isinstance(kernel, Gemm):
        return gemm_seconds(Gemm(kernel.name, kernel.k, kernel.n, kernel.m, kernel.count), device, precision, nbytes)
    return 0.0


def _backward(kernel: Kernel, device: DeviceSpec, precision: str, nbytes: int, attention: str) -> Seconds:
    return _input_gradient(kernel, device, precision, nbytes, attention) + _weight_gradient(kernel, device, precision, nbytes)


def _parts(
    kernels: tuple[Kernel, ...], parameters: float, device: DeviceSpec, workload: Workload, config: ParallelConfig
) -> tuple[Seconds, Seconds, Seconds]:
    """Seconds of forward, input gradients and weight gradients of kernels that hold `parameters` on this rank.

    As in arXiv 2401.10241 (table 1) one of a product's two backward products is each gradient's, and all else is on the way to
    the input; the gradients' accumulation goes with the weights.
    """
    precision, nbytes = workload.precision, workload.bytes_per_value
    fw = sum(_forward(k, device, precision, nbytes, config.attention) for k in kernels)
    inputs = sum(_input_gradient(k, device, precision, nbytes, config.attention) for k in kernels)
    weights = sum(_weight_gradient(k, device, precision, nbytes) for k in kernels)
    return fw, inputs, weights + pass_seconds(accumulated(parameters, workload, config), device)


def accumulated(parameters: float, workload: Workload, config: ParallelConfig) -> Bytes:
    """Bytes moved to add the gradients of so many parameters to what was accumulated."""
    return (workload.bytes_per_value + 2.0 * GRADIENT_BYTES[config.gradient_precision]) * parameters


def _launched(device: DeviceSpec, forward: Seconds, backward: Seconds) -> tuple[Seconds, Seconds]:
    """(forward, backward) kernels of a layer with their launches: side by side, or in turn where launches block."""
    launches = device.launch, LAUNCH_BACKWARD * device.launch
    if device.blocking:
        return forward + launches[0], backward + launches[1]
    return max(forward, launches[0]), max(backward, launches[1])


def layer_seconds(device: DeviceSpec, workload: Workload, config: ParallelConfig) -> tuple[Seconds, Seconds]:
    """(forward, backward) seconds of one layer and one microbatch on one rank, communication left out."""
    forward, inputs, weights = layer_parts(device, workload, config)
    return forward, inputs + weights


def measured(device: DeviceSpec, workload: Workload, config: ParallelConfig) -> MeasuredRow | None:
    """What the device's profile says of this workload; None where formulas stand."""
    if device.profile is None or config.cp > 1 or config.ep > 1:
        return None
    return lookup(device.profile, workload, device.runs(workload.precision), config.tp, config.microbatch_size)[0]


def includes_collectives(device: DeviceSpec, workload: Workload, config: ParallelConfig) -> bool:
    """Whether the seconds of a layer hold the exchanges of its tensor-parallel ranks."""
    row = measured(device, workload, config)
    return row is not None and row.collectives


def rests_on(device: DeviceSpec, workload: Workload, config: ParallelConfig) -> str:
    """What the seconds of compute rest on, in words: measured, interpolated, or formulas and why."""
    if device.profile is None:
        return "formula: the device is not profiled"
    if config.cp > 1 or config.ep > 1:
        return "formula: profiles do not tell of cp and ep"
    row = measured(device, workload, config)
    words = lookup(device.profile, workload, device.runs(workload.precision), config.tp, config.microbatch_size)[1]
    return words + (", head by formula" if row and not row.head else "")


def rank_kernels(workload: Workload, config: ParallelConfig) -> tuple[Kernel, ...]:
    """Forward kernels of one layer and one microbatch on one rank."""
    sharding = LayerSharding(config.tp, config.sequence_parallel, config.cp, config.ep)
    return layer_kernels(workload.model, config.microbatch_size, workload.seq_len, sharding, workload.bytes_per_value)


def first_kernels(workload: Workload, config: ParallelConfig) -> tuple[Kernel, ...]:
    """Forward kernels of the input embedding for one microbatch on one rank."""
    return embedding_kernels(workload.model, config.microbatch_size, workload.seq_len // config.cp, workload.bytes_per_value)


def last_kernels(workload: Workload, config: ParallelConfig) -> tuple[Kernel, ...]:
    """Forward kernels of final norm, logits and loss for one microbatch on one rank."""
    size, tokens = config.microbatch_size, workload.seq_len // config.cp
    return head_kernels(workload.model, size, tokens, config.tp, workload.bytes_per_value)


def layer_parameters(workload: Workload, config: ParallelConfig) -> float:
    """Parameters of one layer on one rank."""
    return workload.model.layer_parameters_on(config.ep) / config.tp


def head_parameters(workload: Workload, config: ParallelConfig) -> float:
    """Parameters of final norm and logits on one rank."""
    return workload.model.head_parameters / config.tp


@functools.lru_cache(maxsize=4096)
def ring_seconds(device: DeviceSpec, workload: Workload, config: ParallelConfig, backward: bool) -> Seconds:
    """Seconds of one layer's attention core that can hide the exchange of keys and values among cp ranks.

    A rank computes on its own part while the next one travels, in cp equal steps of which the last has nothing left to wait
    for (Transformer Engine, pytorch context_parallel.py, AttnFuncWithCPAndKVP2P; `cp_comm_type` p2p of Megatron-Core).
    """
    cores = [kernel for kernel in rank_kernels(workload, config) if isinstance(kernel, Attention)]
    precision, nbytes = workload.precision, workload.bytes_per_value
    seconds = sum(attention_seconds(core, device, precision, nbytes, config.attention, backward) for core in cores)
    return seconds * (config.cp - 1) / config.cp


@functools.lru_cache(maxsize=4096)
def layer_parts(device: DeviceSpec, workload: Workload, config: ParallelConfig) -> tuple[Seconds, Seconds, Seconds]:
    """`layer_seconds` with the backward as (input gradients and recomputation, weight gradients).

    A measured backward is split as the formulas split theirs.
    """
    kernels, row = rank_kernels(workload, config), measured(device, workload, config)
    forward, inputs, weights = _parts(kernels, layer_parameters(workload, config), device, workload, config)
    forward, backward = row.layer if row else _launched(device, forward, inputs + weights)
    weights *= backward / (inputs + weights)
    inputs = backward - weights
    if config.recompute == "full":
        inputs += forward
    elif config.recompute == "selective" and config.attention == "unfused":
        core = [k for k in kernels if isinstance(k, Attention)]
        inputs += sum(_forward(k, device, workload.precision, workload.bytes_per_value, "unfused") for k in core)
    return forward, inputs, weights


@functools.lru_cache(maxsize=4096)
def embedding_seconds(device: DeviceSpec, workload: Workload, config: ParallelConfig) -> tuple[Seconds, Seconds]:
    """(forward, backward) seconds of the input embedding for one microbatch."""
    if row := measured(device, workload, config):
        return row.embedding
    forward, inputs, weights = _parts(first_kernels(workload, config), 0.0, device, workload, config)
    return forward, inputs + weights


def head_seconds(device: DeviceSpec, workload: Workload, config: ParallelConfig) -> tuple[Seconds, Seconds]:
    """(forward, backward) seconds of final norm, logits and loss for one microbatch."""
    forward, inputs, weights = head_parts(device, workload, config)
    return forward, inputs + weights


@functools.lru_cache(maxsize=4096)
def head_parts(device: DeviceSpec, workload: Workload, config: ParallelConfig) -> tuple[Seconds, Seconds, Seconds]:
    """`head_seconds` with the backward as (input gradients, weight gradients)."""
    row = measured(device, workload, config)
    parameters = head_parameters(workload, config)
    forward, inputs, weights = _parts(last_kernels(workload, config), parameters, device, workload, config)
    if row and row.head:
        forward, backward = row.head
        weights *= backward / (inputs + weights)
        inputs = backward - weights
    return forward, inputs, weights


def optimizer_seconds(device: DeviceSpec, parameters: float) -> Seconds:
    """Seconds of the Adam step over the parameters whose state this rank holds, and of what the host does once a step."""
    return pass_seconds(ADAM_BYTES * parameters, device) + device.step


# kernel by kernel, to be looked at


def kernel_seconds(kernel: Kernel, device: DeviceSpec, workload: Workload, config: ParallelConfig) -> tuple[Seconds, Seconds]:
    """(forward, backward) seconds of one kernel by formula."""
    how = device, workload.precision, workload.bytes_per_value, config.attention
    return _forward(kernel, *how), _backward(kernel, *how)


def work(kernel: Kernel, workload: Workload, config: ParallelConfig) -> tuple[Flops, Bytes]:
    """FLOPs of one kernel's forward and backward, and the bytes that they move; of elementwise passes no FLOP is counted."""
    nbytes = workload.bytes_per_value
    if isinstance(kernel, Gemm):
        return 3.0 * kernel.flops, 3.0 * kernel.count * kernel.values * nbytes
    if isinstance(kernel, Attention):
        flops, moved = zip(*(attention_work(kernel, nbytes, config.attention, way) for way in (False, True)), strict=True)
        return sum(flops), sum(moved)
    return 0.0, (1.0 + PASS_BACKWARD) * kernel.moved


@dataclass(frozen=True, slots=True)
class KernelTime:
    """Seconds of the kernels of one name in one layer and microbatch, and what binds them: compute, memory or launch."""

    name: str
    forward: Seconds
    forward_limit: str
    backward: Seconds
    backward_limit: str


def kernel_times(device: DeviceSpec, workload: Workload, config: ParallelConfig) -> tuple[KernelTime, ...]:
    """The kernels that `layer_seconds` adds up, recomputation left out: in their order, those of one name together."""
    precision, nbytes, kernels = workload.precision, workload.bytes_per_value, rank_kernels(workload, config)
    found = []
    for name in dict.fromkeys(kernel.name for kernel in kernels):
        same = tuple(kernel for kernel in kernels if kernel.name == name)

        def seconds(run: Callable[..., Seconds], on: DeviceSpec, same: tuple[Kernel, ...] = same) -> Seconds:
            return sum(run(kernel, on, precision, nbytes, config.attention) for kernel in same)

        forward, backward = (functools.partial(seconds, run) for run in (_forward, _backward))
        found.append(KernelTime(name, forward(device), _limit(forward, device), backward(device), _limit(backward, device)))
    *_, accumulated = _parts((), layer_parameters(workload, config), device, workload, config)
    return (*found, KernelTime("gradients", 0.0, "", accumulated, "memory"))


def _limit(seconds: Callable[[DeviceSpec], Seconds], device: DeviceSpec) -> str:
    """What binds: launch where it is half of the time or more, else compute or memory, whichever takes longer alone."""
    peak = tuple((precision, math.inf) for precision, _ in device.peak)
    computing, moving = replace(device, memory_bandwidth=math.inf), replace(device, peak=peak)
    if seconds(device) < 2 * seconds(replace(computing, peak=peak)):
        return "launch"
    return "compute" if seconds(computing) >= seconds(moving) else "memory"
