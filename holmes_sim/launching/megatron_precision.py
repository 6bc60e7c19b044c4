"""The precision of weights, products and gradients as flags of Megatron-LM, and what it refuses of them.

fp8, mxfp8 and nvfp4 are formats of products over bf16 (megatron-core 0.19.2, fp8 and fp4 of
megatron/core/transformer/transformer_config.py); Transformer Engine has nvfp4 from 2.7 on (megatron/training/arguments.py)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from sim.kernels import tensor_overlap
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from sim.workload.workload import Workload

Flags: TypeAlias = dict[str, str | int | float | bool]

OVER_BF16 = ("bf16", "fp8", "mxfp8", "nvfp4")
"""Precisions whose flags have bf16."""
PRECISIONS: dict[str, tuple[str, ...]] = dict.fromkeys(OVER_BF16, ("bf16",)) | {"fp16": ("fp16",), "fp32": ()}
"""Precision of a workload -> flags without a value."""
GRADIENTS = dict.fromkeys(OVER_BF16, ("fp32", "bf16")) | {"fp16": ("fp32", "fp16"), "fp32": ("fp32",)}
"""Precision -> gradient precisions that validate_args accepts."""
DISCARDED = ("layernorm", "moe_act")
"""Modules that are not recomputed under delayed scaling of fp8 (transformer_config.py of Megatron-LM d98e8a64, line 2001)."""
UNBUFFERED = ("fp16", "fp32", "nvfp4")
"""Precisions that no user buffer of Transformer Engine has: Megatron-LM d98e8a64 and Megatron-Bridge 067f987 (both
initialize.py) give `initialize_ub` no dtype, so buffers are bf16 if they are not fp8; quantised values are those of fp8 and
mxfp8 (d0067d0d, `initialize_ub` and `fill_userbuffers_buffer_for_all_gather` of transformer_engine/pytorch/module/base.py)."""


def flags(plan: Plan) -> Flags:
    """Flags of the precision of weights, products and gradients."""
    precision, gradients = plan.workload.precision, plan.config.gradient_precision
    found: Flags = dict.fromkeys(PRECISIONS[precision], True)
    if precision == "fp8":
        found["fp8-format"] = "hybrid"
        if scales_by_current_values(plan):
            found["fp8-recipe"] = "tensorwise"
        if plan.config.fp8_param_gather and plan.config.zero_stage:
            found["fp8-param-gather"] = True
    elif precision == "mxfp8":
        found |= {"fp8-format": "e4m3", "fp8-recipe": "mxfp8"}
    elif precision == "nvfp4":
        found |= {"fp4-format": "e2m1", "fp4-recipe": "nvfp4"}
    if gradients == "bf16":
        found["grad-reduce-in-bf16"] = True
    elif precision == "fp16" and gradients == "fp32":
        found["accumulate-allreduce-grads-in-fp32"] = True
    return found


def scales_by_current_values(plan: Plan) -> bool:
    """Whether each tensor in fp8 has the scale of its own largest value (`Stack.current_scaling`); else that of earlier values,
    which is the default of --fp8-recipe, delayed (fp8_recipe of transformer_config.py)."""
    return plan.workload.precision == "fp8" and any(spec.current_scaling for spec in plan.specs)


def assumed(plan: Plan) -> Iterator[str]:
    """Formats of products that are narrower than the weights."""
    if plan.workload.precision == "fp8":
        scaling = "current" if scales_by_current_values(plan) else "delayed"
        yield f"fp8 uses the format hybrid with {scaling} scaling, over bf16."
    elif plan.workload.precision == "mxfp8":
        yield "mxfp8 uses the format e4m3 with a scale for each 32 values, over bf16."
    elif plan.workload.precision == "nvfp4":
        yield "nvfp4 uses the format e2m1 with a scale for each 16 values, over bf16; weights are gathered in bf16."


def unsupported(config: ParallelConfig, workload: Workload) -> Iterator[str]:
    """Precisions of weights and gradients without flags, and what does not go with a precision."""
    precision, gradients = workload.precision, config.gradient_precision
    if precision not in PRECISIONS:
        yield f"precision {precision}: there is no flag for it; {', '.join(OVER_BF16)}, fp16 or fp32"
    elif gradients not in GRADIENTS[precision]:
        known = " or ".join(GRADIENTS[precision])
        yield f"gradient_precision {gradients}: there is no flag for it with precision {precision}; {known}"
    discarded = [name for name in config.modules if name in DISCARDED]
    if precision == "fp8" and discarded and not config.current_scaling:
        named = ", ".join(discarded)
        yield f"recompute_modules {named} in fp8: not with delayed scaling; a stack with current_scaling, or others"
    if config.attention == "flash" and precision in ("fp32", "tf32"):
        yield f"attention flash: its kernels take fp16 and bf16, not {precision}; attention unfused, or precision bf16"


def without_buffers(config: ParallelConfig, workload: Workload) -> Iterator[str]:
    """An overlap of tensor parallelism in a precision that user buffers do not have."""
    if tensor_overlap.is_whole(config) and workload.precision in UNBUFFERED:
        yield (
            f"tp_overlap with precision {workload.precision}: the user buffers of its Transformer Engine are bf16, fp8 or "
            f"mxfp8; precision bf16, or a stack without tp_overlap"
        )
