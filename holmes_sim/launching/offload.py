"""Optimizer state in host memory: limits of the targets that have it, and the refusal of those that have not.

Megatron-LM has --optimizer-cpu-offload, for the precision-aware path of the distributed optimizer (NVIDIA/Megatron-LM d98e8a64,
megatron/training/arguments.py and megatron/core/optimizer/__init__.py); DeepSpeed has offload_optimizer, for ZeRO 1 to 3
(deepspeedai/DeepSpeed edaa722, docs/_pages/config-json.md). Both keep fp32 state on the host."""

from __future__ import annotations

from collections.abc import Iterator

from sim.plan.parallel_config import ParallelConfig
from sim.workload.workload import Workload


def limited(config: ParallelConfig, workload: Workload) -> Iterator[str]:
    """What neither Megatron-LM nor DeepSpeed can offload, or not as it is modelled."""
    if config.offloads_parameters:
        yield "offload parameters: it runs no layers of which two are on the device, with all microbatches; --offload optimizer"
    if config.offloads_optimizer and not config.zero_stage:
        yield "offload optimizer with zero_stage 0: it needs a sharded optimizer; --zero-stage 1"
    if config.offloads_optimizer and workload.optimizer != "adam":
        yield f"offload optimizer with optimizer {workload.optimizer}: the state on the host is fp32; adam"


def refused(config: ParallelConfig, reason: str) -> Iterator[str]:
    """Offloaded optimizer state, for a target that cannot have it, with the reason."""
    if config.offloads_optimizer:
        yield f"offload optimizer: {reason}; --offload none"
