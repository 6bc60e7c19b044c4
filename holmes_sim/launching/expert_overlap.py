"""What Megatron-Core requires where the exchange of tokens overlaps compute.

Rules of `__post_init__` of megatron/core/transformer/transformer_config.py, NVIDIA/Megatron-LM d98e8a64 (2026-08-22)."""

from __future__ import annotations

from collections.abc import Iterator

from holmes_sim.launching.megatron_precision import OVER_BF16
from sim.plan.parallel_config import ParallelConfig
from sim.workload.workload import Workload

PRECISIONS = (*OVER_BF16, "fp16")
"""Precisions whose flags have bf16 or fp16."""


def unsupported(config: ParallelConfig, workload: Workload) -> Iterator[str]:
    """Layouts with which --overlap-moe-expert-parallel-comm is refused. --moe-shared-expert-overlap needs a dispatcher alltoall
    or flex, and excludes the former: no configuration has it otherwise (`sim.plan.expert_parallelism`)."""
    if not config.overlap_expert_communication or not workload.model.experts:
        return
    name = "overlap_expert_communication"
    if config.ep == 1:
        yield f"{name} with ep 1: no token travels; ep 2 or more, or without it"
    if config.dispatcher == "allgather":
        yield f"{name} with dispatcher allgather: it overlaps an all_to_all; dispatcher alltoall, deepep or hybridep"
    if config.pp > 1 and config.vpp == 1:
        yield f"{name} with pp {config.pp} and vpp 1: its 1F1B pairs microbatches of virtual stages; vpp 2 or more, or pp 1"
    if config.recompute == "full":
        yield f"{name} with recompute full: it runs layers in parts; recompute none or selective"
    if "moe" in config.modules:
        yield f"{name} with recompute_modules moe: it runs experts in parts; other modules"
    if workload.precision not in PRECISIONS:
        yield f"{name} with precision {workload.precision}: it is for bf16 and fp16; bf16"
    if workload.model.mtp_layers > 1:
        yield f"{name} with mtp_layers {workload.model.mtp_layers}: one layer that predicts a further token at most; 1 or 0"
