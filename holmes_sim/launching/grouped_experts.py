"""Whether a launch multiplies the experts of a rank together, as the plan counts (Megatron-LM's --moe-grouped-gemm).

Without this flag Megatron-Core has a SequentialMLP, which runs one expert after the other. With it, Transformer Engine's
GroupedLinear needs devices of compute capability 8 (arguments.py), which are those that have bf16, releases up to
megatron-core 0.16 need --bf16, and experts with biases also need --no-bias-dropout-fusion
(NVIDIA/Megatron-LM d98e8a64, megatron/core/transformer/moe/experts.py)."""

from __future__ import annotations

from collections.abc import Iterator

from holmes_sim.launching.megatron_precision import OVER_BF16
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from sim.workload.workload import Workload


def multiplies_together(workload: Workload) -> bool:
    """Whether --moe-grouped-gemm is written."""
    return bool(workload.model.experts) and workload.precision in OVER_BF16 and workload.model.mlp != "gelu"


def assumed(plan: Plan) -> Iterator[str]:
    """That experts run one after the other, where a rank has several."""
    if plan.workload.model.experts > plan.config.ep and not multiplies_together(plan.workload):
        yield (
            "The experts of a rank run one after the other, which takes longer than the plan counts: --moe-grouped-gemm needs "
            "bf16, and experts without biases."
        )


def unsupported(config: ParallelConfig, workload: Workload) -> Iterator[str]:
    """The recomputed module moe_act where experts run one after the other (transformer_config.py)."""
    if workload.model.experts and "moe_act" in config.modules and not multiplies_together(workload):
        yield "recompute_modules moe_act: it needs --moe-grouped-gemm, and that bf16 and experts without biases; other modules"
