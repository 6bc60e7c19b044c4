"""How a launch of Megatron-LM shards state over replicas: the distributed optimizer, or Megatron-FSDP.

Flags and defaults are those of megatron/training/arguments.py at NVIDIA/Megatron-LM d98e8a64 (2026-08-22). Until megatron-core
0.17 the default of --data-parallel-sharding-strategy was no_shard; it is optim_grads_params since (line 3189)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holmes_sim.launch_reading.flags import Flags
from holmes_sim.launching.megatron_fsdp import STRATEGIES
from sim.plan.parallel_config import USUAL_GRADIENTS

USED = "use-megatron-fsdp"
STRATEGY = "data-parallel-sharding-strategy"
ZERO_STAGES = {strategy: stage for stage, strategy in STRATEGIES.items()}
"""--data-parallel-sharding-strategy of Megatron-FSDP -> ZeRO stage."""
MAIN, SENT = "megatron-fsdp-main-grads-dtype", "megatron-fsdp-grad-comm-dtype"
"""Flags of the precision in which gradients are summed, and in which they are sent; auto: that of weights, and the former."""
OUTER = "outer-dp-sharding-strategy"
UNIT = "suggested-communication-unit-size"


def settings(flags: Flags, precision: str) -> dict[str, Any]:
    """ZeRO stage, overlaps and gradient precision, as fields of a configuration. Raises HolmesError for an unknown strategy."""
    zero, gradients = int(flags.has("use-distributed-optimizer")), _gradients(flags, precision)
    if flags.has(USED):
        strategy = flags.word(STRATEGY, STRATEGIES[3])
        if strategy not in ZERO_STAGES:
            raise flags.fault(STRATEGY, f"{strategy} is unknown; known: {', '.join(ZERO_STAGES)}")
        zero, gradients = ZERO_STAGES[strategy], _gradients_of_shards(flags, precision)
        flags.has(UNIT)
        if flags.values.get(OUTER) == [STRATEGIES[0]]:
            flags.has(OUTER)
    reduced, gathered = (flags.has(f"overlap-{what}") for what in ("grad-reduce", "param-gather"))
    return {
        "zero_stage": zero, "gradient_precision": gradients,
        "overlap_grad_reduce": reduced or zero >= 2, "overlap_param_gather": gathered or zero == 3,
    }  # fmt: skip


def assumed(flags: Flags) -> Iterator[str]:
    """What is assumed of a launch that says how far ahead weights are gathered."""
    if flags.has(USED) and flags.has(UNIT):
        yield f"--{UNIT} {flags.word(UNIT)}: weights of two layers are gathered ahead, and any number of gradients waits"


def _gradients(flags: Flags, precision: str) -> str:
    if flags.has("grad-reduce-in-bf16") and precision != "fp16":
        return "bf16"
    summed = flags.has("accumulate-allreduce-grads-in-fp32")
    return "fp32" if summed else USUAL_GRADIENTS.get(precision, "fp32")


def _gradients_of_shards(flags: Flags, precision: str) -> str:
    """Gradient precision under Megatron-FSDP; another one in which they are sent stays among what is not modelled."""
    own = precision if precision in ("fp16", "fp32") else "bf16"
    main = flags.word(MAIN, "auto")
    found = own if main == "auto" else main
    if flags.values.get(SENT, ["auto"])[0] in ("auto", found):
        flags.has(SENT)
    return found
