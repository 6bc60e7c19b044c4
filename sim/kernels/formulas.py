"""Seconds, FLOPs and bytes of single kernels on a device, by formula: matrix products, attention cores, elementwise passes.

A matrix product takes launch + max(FLOPs x padding^w / (peak x c), bytes / (bandwidth x m)), where the device's fitted curve
(`sim.hardware.cluster.GemmCurve`) gives launch, w, c and m. The form and the constants are fitted to measured bf16 products,
see the catalogue. Fused attention takes its causal FLOPs at the device's attention efficiency, or moves its bytes.
An elementwise pass takes its bytes over the memory bandwidth. Backward: two products for each product (gradients of input and
of weight), `FLASH_BACKWARD` times the FLOPs of fused attention, `PASS_BACKWARD` times the bytes of a pass. Beside products in
fp8 and mxfp8 there are the passes that cast their inputs (`sim.kernels.casts`).
"""

from __future__ import annotations

import math
from dataclasses import replace

from sim.hardware.device_spec import FUSED_EXPERTS, DeviceSpec
from sim.kernels.casts import cast_bytes
from sim.plan.parallel_config import ParallelConfig
from sim.units import MICRO, Bytes, Flops, Seconds
from sim.workload.kernels import Attention, Gemm, Kernel, Pass
from sim.workload.model import NARROW
from sim.workload.workload import Workload

PASS_LAUNCH: Seconds = 3 * MICRO
"""Fixed time of a memory-bound kernel (NVIDIA aiconfigurator 095f58a, systems/*.yaml: 3 us beside 0.8 of the bandwidth)."""
PASS_BACKWARD = 1.75
"""Bytes that the backward of a pass moves for each byte of its forward. Counted on the passes of a GPT layer, in units of s b h
values, backward / forward: norms 6 / 4 (gradient and input read, gradient written), heads 9 / 6 and activation 16 / 8 (both
with a bias gradient), dropout + residual 13 / 7 (mask applied, bias gradient, two branches added): 44 / 25."""
CUDA_CORE_EFFICIENCY = 0.93
"""Share of the fp32 peak that products without tensor cores reach. Fitted to Sailor's layer profiles (eth-easl/sailor):
OPT-30B in fp32 on A100, 145 ms forward at one sequence of 2,048, and GPT-Neo 2.7B on V100."""
TENSOR_CORE_ALIGNMENT = 16
"""Rows use tensor cores if their bytes are a multiple of this (NVIDIA, Matrix Multiplication Background User's Guide, 2.2)."""
UNALIGNED_RATE = 0.5
"""Share of the fp32 peak that batched attention products reach where head_dim is not aligned. Fitted to one pair of runs:
BLOOM's search, hidden 13,824 with 128 heads (head_dim 108) against 64 (216), 162.7 against 121.3 s a step."""
FLASH_BACKWARD = 2.5
"""FLOPs of the backward of fused attention for each FLOP of its forward: scores are recomputed (Dao, arXiv 2307.08691,
section 3.1)."""
EXPOSED_ACCUMULATION = 0.6
"""Share of the time of the bytes that a product moves to add its result to one in memory (`gemm_seconds`) that it takes longer,
because the last part of a tile waits for them. Measured by SimuMax with Transformer Engine's products (MooreThreads/SimuMax
4dcaae5 configs/system/a100_pcie.json and b200_bf16_ceperm.json): weight gradients that are added in fp32 against products of
the same FLOPs without, 2,048 and 4,096 rows: medians 0.53 on A100 (52 shapes), 0.52 and 0.63 on B200 (15 and 71)."""
UNFUSED_PASSES = {2: (6, 9), 4: (8, 18)}
"""Bytes of a value -> how often an unfused attention core moves its scores through memory, (forward, backward). Counted at 2
bytes. Forward: product out, softmax in and out, dropout in and out, product in. Backward: product out, dropout in and out,
softmax twice in and once out, products three times in. At 4 bytes Megatron-LM's fused softmax does not apply
(megatron/core/fusions/fused_softmax.py), so the mask is a pass of its own: 8 forward, confirmed by Sailor's layer profiles
(OPT-350M on GH200 and A100-40). Backward would be 11 by count; 18 is fitted to those profiles and to GPT-Neo 2.7B on A100. The
mask of dropout adds one byte a score."""


SUM_ROWS, SUM_BLOCKS, SUM_STEP = 4, 12, 0.188 * MICRO
"""Rows of a block, blocks at once on a multiprocessor, and seconds for each four partial sums, of the kernel that sums the
gradient of a norm's weight over short rows (NVIDIA/TransformerEngine d0067d0d transformer_engine/common/normalization/rmsnorm,
rmsnorm_bwd_semi_cuda_kernel.cu): each block of the backward leaves one partial sum, and four warps for each 32 values add these
up, so that more multiprocessors make it slower. Rows of 512 values and more have other kernels, which take about 3 us. Measured
on H100 with heads of 128 values (BastiaanGroot/ML-Infrastructure-Engineer 52ad575d training/profiles, Qwen3-8B with tp 8): 48.4
us after 1,024 blocks, 74.3 us after more than fit, which are 12 on each of 132 multiprocessors. Other devices: a guess."""


def gemm_seconds(gemm: Gemm, device: DeviceSpec, precision: str, nbytes: int, added: Bytes = 0.0) -> Seconds:
    """Seconds of a (batch of) matrix products on a device; raises PlanError where it has no peak for the precision.

    `added`: bytes that each value of the result moves beside its own, where it is added to one in memory, at the rate of an
    elementwise pass; `EXPOSED_ACCUMULATION` of their time is not hidden behind the FLOPs. Thin products move their bytes at
    that rate, too: the memory term of a curve was fitted where computing decides, and on A100 it exceeds the bandwidth."""
    curve = device.curve_of(precision)
    rows, columns = curve.tile
    tiles = math.ceil(gemm.m / rows) * math.ceil(gemm.n / columns)
    waves = math.ceil(tiles / device.compute_units)
    padding = max(waves * device.compute_units * rows * columns / (gemm.m * gemm.n), 1.0)
    flops: float = 2.0 * gemm.m * gemm.n * gemm.k * padding**curve.wave_exponent
    reached = device.elementwise_efficiency if gemm.thin else curve.memory_efficiency
    moving = gemm.values * nbytes / (device.memory_bandwidth * reached)
    adding = added * gemm.m * gemm.n / (device.memory_bandwidth * device.elementwise_efficiency)
    share = CUDA_CORE_EFFICIENCY if precision == "fp32" else curve.reached
    busy = max(flops / (device.peak_of(precision) * share) + EXPOSED_ACCUMULATION * adding, moving + adding)
    return gemm.count * (curve.launch + busy)


def pass_seconds(moved: Bytes, device: DeviceSpec, launches: int = 1) -> Seconds:
    """Seconds of elementwise passes that move `moved` bytes through memory, in so many kernels."""
    return launches * PASS_LAUNCH + moved / (device.memory_bandwidth * device.elementwise_efficiency)


def attention_work(core: Attention, nbytes: int, kind: str, backward: bool) -> tuple[Flops, Bytes]:
    """(FLOPs, bytes moved) of the attention core, fused ("flash") or "unfused", in one direction.

    A fused core moves its inputs and outputs only: queries, keys and values in, values out; backward also reads the values and
    their gradient and writes the gradients of queries, keys and values (Dao, arXiv 2307.08691, algorithms 1 and 2). An unfused
    core moves its scores as often as `UNFUSED_PASSES` says.
    """
    if kind == "flash":
        queries_and_values = float(core.batch * core.heads * core.seq_len * core.both_dims) / core.cp
        keys_and_values = float(core.batch * core.kv_heads * core.seq_len * core.both_dims)
        moved = 2.0 * (queries_and_values + keys_and_values) if backward else queries_and_values + keys_and_values
        return (FLASH_BACKWARD if backward else 1.0) * core.flops, moved * nbytes
    products = (2.0 if backward else 1.0) * (2.0 * core.scores * core.both_dims)
    return products, (UNFUSED_PASSES[nbytes][backward] * nbytes + 1.0) * core.scores


def attention_seconds(core: Attention, device: DeviceSpec, precision: str, nbytes: int, kind: str, backward: bool) -> Seconds:
    """Seconds of the attention core, fused ("flash") or as two products with softmax between ("unfused"), whose scores move as
    many times the bytes of `UNFUSED_PASSES` as the software's passes ("scores") say.

    The backward in fp8 and mxfp8 computes the scores outside of a window, too (cuDNN 9.19 and 9.22; docs/model.md)."""
    if backward and core.window and device.fp8_attention and precision in NARROW:
        core = replace(core, window=0)
    dtype = "fp16" if precision == "fp16" else "bf16"
    peak = device.peak_of(dtype if precision in ("fp16", "bf16", *NARROW) else precision)
    flops, moved = attention_work(core, nbytes, kind, backward)
    if kind == "flash":
        rates = device.attention_of(precision)
        share = rates.share(core.causal_length(backward), core.both_dims / 2, backward)
        queries = core.batch * core.heads * core.seq_len / core.cp * (1 if backward else core.streams)  # of kernels at once
        share /= rates.waiting(queries, device.compute_units, backward)
        return max(flops / (peak * share), moved / (device.memory_bandwidth * device.elementwise_efficiency))
    rate = peak * device.gemm.reached
    if nbytes < 4 and core.head_dim * nbytes % TENSOR_CORE_ALIGNMENT:
        rate = min(rate, UNALIGNED_RATE * device.peak_of("fp32"))
    return flops / rate + pass_seconds(moved * dict(device.passes).get("scores", 1.0), device)


def forward_seconds(kernel: Kernel, device: DeviceSpec, precision: str, nbytes: int, attention: str) -> Seconds:
    """Seconds of a kernel's forward; `attention` is the kind of attention core, "flash" or "unfused"."""
    if isinstance(kernel, Gemm):
        return gemm_seconds(kernel, device, precision, nbytes) + _cast_seconds(kernel, device, precision, 0)
    if isinstance(kernel, Attention):
        return attention_seconds(kernel, device, precision, nbytes, attention, False)
    return pass_seconds(device.moved(kernel, precision), device, kernel.launches[0])


def input_gradient_seconds(kernel: Kernel, device: DeviceSpec, precision: str, nbytes: int, attention: str) -> Seconds:
    """Seconds of the gradient of a kernel's input: one product of a Gemm, the whole backward of any other kernel."""
    if isinstance(kernel, Gemm):
        product = Gemm(kernel.name, kernel.m, kernel.k, kernel.n, kernel.count, thin=kernel.thin)
        return gemm_seconds(product, device, precision, nbytes) + _cast_seconds(kernel, device, precision, 1)
    if isinstance(kernel, Attention):
        return attention_seconds(kernel, device, precision, nbytes, attention, True)
    return pass_seconds(_moved_backward(kernel, device, precision), device, kernel.launches[1]) + _sum_seconds(kernel, device)


def weight_gradient_seconds(kernel: Kernel, device: DeviceSpec, precision: str, nbytes: int, added: Bytes = 0.0) -> Seconds:
    """Seconds of the gradient of a kernel's weight: one product of a Gemm (`added` as in `gemm_seconds`), 0 for any other and
    for a frozen one."""
    if isinstance(kernel, Gemm) and not kernel.frozen:
        product = Gemm(kernel.name, kernel.k, kernel.n, kernel.m, kernel.count, thin=kernel.thin)
        return gemm_seconds(product, device, precision, nbytes, added) + _cast_seconds(kernel, device, precision, 2)
    return 0.0


def backward_seconds(
    kernel: Kernel, device: DeviceSpec, precision: str, nbytes: int, attention: str, added: Bytes = 0.0
) -> Seconds:
    """Seconds of a kernel's backward: gradients of input and weight (`added` as in `gemm_seconds`)."""
    inputs = input_gradient_seconds(kernel, device, precision, nbytes, attention)
    return inputs + weight_gradient_seconds(kernel, device, precision, nbytes, added)


def kernel_seconds(kernel: Kernel, device: DeviceSpec, workload: Workload, config: ParallelConfig) -> tuple[Seconds, Seconds]:
    """(forward, backward) seconds of one kernel of a workload."""
    options = device, workload.precision, workload.bytes_per_value, config.attention
    return forward_seconds(kernel, *options), backward_seconds(kernel, *options)


def kernel_work(kernel: Kernel, device: DeviceSpec, workload: Workload, config: ParallelConfig) -> tuple[Flops, Bytes]:
    """(FLOPs, bytes moved) of one kernel, forward and backward together; an elementwise pass counts as 0 FLOPs."""
    nbytes = workload.bytes_per_value
    if isinstance(kernel, Gemm):
        times = float(kernel.directions)
        return times * kernel.flops, times * kernel.count * kernel.values * nbytes
    if isinstance(kernel, Attention):
        both = (attention_work(kernel, nbytes, config.attention, backward) for backward in (False, True))
        flops, moved = zip(*both, strict=True)
        return sum(flops), sum(moved)
    return 0.0, device.moved(kernel, workload.precision) + _moved_backward(kernel, device, workload.precision)


def _cast_seconds(kernel: Gemm, device: DeviceSpec, precision: str, product: int) -> Seconds:
    """Seconds of the casts beside a product: 0 the forward, 1 the gradient of the input, 2 that of the weight."""
    fused = device.fused_experts and precision == FUSED_EXPERTS
    moved = cast_bytes(kernel, device.curve_of(precision), device.current_scaling, fused)[product]
    return pass_seconds(moved, device) if moved else 0.0


def _sum_seconds(kernel: Pass, device: DeviceSpec) -> Seconds:
    """Seconds in which the gradient of a norm's weight is summed over short rows (`SUM_STEP`)."""
    if not (kernel.rows and device.summed_norms):
        return 0.0
    return SUM_STEP * min(kernel.rows / SUM_ROWS, SUM_BLOCKS * device.compute_units) / SUM_ROWS


def _moved_backward(kernel: Pass, device: DeviceSpec, precision: str) -> Bytes:
    """Bytes that the backward of a pass moves."""
    if kernel.backward is None:
        return PASS_BACKWARD * device.moved(kernel, precision)
    return kernel.backward * device.multiple(kernel)
