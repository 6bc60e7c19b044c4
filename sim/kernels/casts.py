"""Casts of the inputs of products in fp8 and mxfp8: bytes that they move, product by product.

With one scale for each tensor (fp8) a forward casts the input of a product, a backward the gradient of its result; both serve
the weight gradient as well. Products of Hopper need the summed dimension of both inputs contiguous, so a weight gradient
needs a transposed copy of each of its inputs; those of Blackwell do not (NVIDIA/TransformerEngine d0067d0d,
nvte_is_non_tn_fp8_gemm_supported of common/transformer_engine.cpp, Float8Quantizer of pytorch/csrc/quantizer.cpp). Bytes for
each value:

cast                    2 read and 1 written, and 1 more for the transposed copy that the same kernel writes
with current scaling    2 more: a kernel before it reads the tensor for its largest value
in a norm               none: the norm writes fp8, instead of bf16. With current scaling a norm finds the largest value, and a
                        cast follows (with_quantized_norm of pytorch/module/layernorm_linear.py, FUSED_NORM_AMAX_FP8 of
                        pytorch/csrc/extensions/normalization.cpp)
transposed later        1 read and 1 written: what a norm cast, and what tensor-parallel ranks gathered, each having cast its
                        own part (supports_only_rowwise_all_gather, grad_output_preprocess of pytorch/module/base.py)

With a scale for each 32 values (mxfp8) there are two copies, because rows and columns have scales of their own: one kernel
reads 2 bytes and writes 2 (1 + 1/32), of an input, of what a norm wrote, and of a gradient. A norm writes both copies itself
with NVTE_NORM_FWD_USE_CUDNN=1 only (pytorch/csrc/extensions/normalization.cpp), which Megatron-Bridge's recipes for dense
models in mxfp8 unset (NVIDIA-NeMo/Megatron-Bridge v0.3.0 scripts/performance/perf_plugins.py, del_cudnn_ln). Products of
experts that apply the activation function (`DeviceSpec.fused_experts`) write its copies, too: the input of the second product,
and the gradient of the first one's result (ForwardGroupedMLP_CuTeGEMMSwiGLU_MXFP8 and its backward, pytorch/ops/fused).

Weights are cast once a step (`weight_cast_bytes`). Left out: the sum of gradients of a bias, and the second pass over gradients
in mxfp8 that are gathered beside products (a part of them on each rank).
"""

from __future__ import annotations

from sim.hardware.device_spec import GemmCurve
from sim.units import Bytes
from sim.workload.kernels import Gemm

READ, WRITTEN, COPY = 2.0, 1.0, 1.0
"""Bytes of a value: of bf16 that are read, of fp8 that are written, and of its transposed copy."""
TRANSPOSED_LATER = 2.0
"""Bytes that a transposition of its own reads and writes for each value of fp8."""
BLOCKS = READ + 2 * (WRITTEN + 1 / 32)
"""Bytes of a value that is cast to mxfp8 twice, along rows and along columns, with a byte of scale for 32 values each."""

GATHERED = {"fp8": 1.0, "mxfp8": 1 + 1 / 32, "nvfp4": 0.5 + 1 / 16}
"""Bytes of a quantised value that tensor-parallel ranks gather, with the scale of its block of 32 (mxfp8) or 16 values (nvfp4):
Transformer Engine quantises before it gathers (NVIDIA/TransformerEngine d0067d0d pytorch/distributed.py, _all_gather_fp8,
_all_gather_mxfp8, _all_gather_nvfp4, which packs two values into a byte)."""


def cast_bytes(
    gemm: Gemm, curve: GemmCurve, current_scaling: bool = False, fused_experts: bool = False
) -> tuple[Bytes, Bytes, Bytes]:
    """Bytes that casts beside a product move in its (forward, input gradient, weight gradient); 0 where `curve` contains
    them, or where the product stays in bf16."""
    casts = gemm.casts
    if casts is None or curve.casts == "contained":
        return 0.0, 0.0, 0.0
    transposed = curve.casts == "transposed"
    inputs, gradients = float(gemm.count * gemm.m * gemm.k), float(gemm.count * gemm.m * gemm.n)
    if curve.casts == "blocks":
        written = casts.activation if fused_experts else ""
        own = 0.0 if written == "input" else BLOCKS * inputs / casts.input_parts
        return own, 0.0 if written == "gradient" else BLOCKS * gradients / casts.gradient_parts, 0.0
    search = READ if current_scaling else 0.0
    in_norm = casts.normed and not current_scaling
    later = TRANSPOSED_LATER * inputs if transposed and (in_norm or casts.input_parts > 1) else 0.0
    later += TRANSPOSED_LATER * gradients if transposed and casts.gradient_parts > 1 else 0.0
    own = READ + WRITTEN + (COPY if transposed and casts.input_parts == 1 else 0.0) + (0.0 if casts.normed else search)
    back = READ + WRITTEN + (COPY if transposed and casts.gradient_parts == 1 else 0.0) + search
    forward = 0.0 if in_norm else own * inputs / casts.input_parts
    return forward, back * gradients / casts.gradient_parts, later


def weight_cast_bytes(curve: GemmCurve, current_scaling: bool, owned: float | None) -> Bytes:
    """Bytes that the casts of a step move for each weight of linear layers on a rank.

    Transformer Engine keeps the casts of weights for all microbatches of a step (is_first_microbatch of
    pytorch/module/linear.py).
    owned: the share of the weights that a rank updates, where it casts these and gathers all in fp8; Hopper's products then
    need a transposed copy of all that was gathered (post_all_gather_processing, pytorch/tensor/utils.py). None: each rank casts
    all weights, as it does under mxfp8, whose weights are gathered in bf16."""
    if curve.casts == "contained":
        return 0.0
    if curve.casts == "blocks":
        return BLOCKS
    transposed, cast = curve.casts == "transposed", READ + WRITTEN + (READ if current_scaling else 0.0)
    if owned is None:
        return cast + (COPY if transposed else 0.0)
    return cast * owned + (TRANSPOSED_LATER if transposed else 0.0)
