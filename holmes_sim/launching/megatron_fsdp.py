"""Megatron-FSDP, with which Megatron-LM runs ZeRO 2 and 3: its flags, what it cannot run, and what it keeps beyond the plan.

Read at NVIDIA/Megatron-LM d98e8a64 (2026-08-22), version 1 of Megatron-FSDP; numbers are lines. The flags are those of
megatron-core 0.17 and later: 0.16 has no --megatron-fsdp-main-grads-dtype. The version of FlagScale, 8479eb35 (2025-09-19), is
alike in what is said here, but its mesh has no ep.

- megatron/training/arguments.py: it takes the checkpoint format fsdp_dtensor (1169), the optimizers adam and sgd (1150), and
  any CUDA_DEVICE_MAX_CONNECTIONS but 1 (1166). It sets the distributed optimizer (1135).
- megatron/core/distributed/fsdp/mcore_fsdp_adapter.py: its mesh divides all ranks by tp, ep and dp x cp (751, 820), so a
  pipeline ends with an error; with fused accumulation of gradients it needs Transformer Engine 2.10 (153).
- megatron/core/distributed/fsdp/src/megatron_fsdp/megatron_fsdp.py: reductions under ZeRO 2 and 3, and gathers under ZeRO 3,
  always overlap (330, 333); so many parameters are gathered ahead, and so many gradients wait (424 to 444).
- param_and_grad_buffer.py beside it: gradients have the precision of weights unless a flag says another (2313); those that
  wait are freed when more wait than that (3924); parameters outside layers stay gathered (4339).
- megatron/core/optimizer/cpu_offloading/hybrid_optimizer.py: it copies a gradient, here a shard of a DTensor, to a tensor of
  the whole parameter's shape (104 to 115), which torch refuses.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from sim.kernels import memory
from sim.plan.parallel_config import GRADIENT_BYTES, ParallelConfig
from sim.plan.plan import Plan
from sim.units import Bytes, size_text
from sim.workload.workload import Workload

STRATEGIES = {0: "no_shard", 1: "optim", 2: "optim_grads", 3: "optim_grads_params"}
"""ZeRO stage -> --data-parallel-sharding-strategy."""
CHECKPOINTS = "fsdp_dtensor"
"""The only checkpoint format that it takes (--ckpt-format)."""
ENVIRONMENT = {"CUDA_DEVICE_MAX_CONNECTIONS": "8"}
"""CUDA's own default (Transformer Engine d0067d0d, comm_gemm_overlap.cpp, line 168), so that no other value is inherited."""
UNIT = 2.5
"""--suggested-communication-unit-size, in layers. So many parameters wait for their reduction at most when the next one begins,
and half as many are the least that is gathered ahead, in whole layers: two, as in the plan (`memory.GATHERED_AHEAD`)."""
WAITING = UNIT + 1
"""Layers of gradients that are whole beyond the one that the plan counts: `UNIT` in the queue, one more that joins it."""


def is_used(config: ParallelConfig) -> bool:
    """Whether a layout needs it: ZeRO 2 or 3 over more than one rank. ZeRO 1 has the distributed optimizer alone."""
    return config.reduces_each_microbatch


def flags(config: ParallelConfig, workload: Workload) -> dict[str, str | int | float | bool]:
    """Its flags of Megatron-LM; none where it is not used."""
    if not is_used(config):
        return {}
    return {
        "use-megatron-fsdp": True,
        "data-parallel-sharding-strategy": STRATEGIES[config.zero_stage],
        "ckpt-format": CHECKPOINTS,
        "megatron-fsdp-main-grads-dtype": config.gradient_precision,
        "suggested-communication-unit-size": communication_unit(config, workload),
    }


def overrides(config: ParallelConfig, workload: Workload) -> dict[str, str | int | float | bool | None]:
    """Its overrides of a recipe of Megatron-Bridge, which may have it; other launches do without it."""
    used: dict[str, str | int | float | bool | None] = {
        f"{section}.use_megatron_fsdp": is_used(config) for section in ("dist", "ddp")
    }
    if not is_used(config):
        return used
    return used | {
        "ddp.data_parallel_sharding_strategy": STRATEGIES[config.zero_stage],
        "ddp.outer_dp_sharding_strategy": "no_shard",
        "ddp.suggested_communication_unit_size": communication_unit(config, workload),
        "checkpoint.ckpt_format": CHECKPOINTS,
    }


def communication_unit(config: ParallelConfig, workload: Workload) -> int:
    """`UNIT` in parameters of the largest layer on a rank."""
    every = replace(workload, adapter=None)
    kinds = (memory.by_sharing(alike, config, 1, False, False) for _, alike in every.alike(1))
    return math.ceil(UNIT * max(sum(parameters for _, parameters, _ in kind) for kind in kinds))


def unsupported(config: ParallelConfig) -> Iterator[str]:
    """Layouts of ZeRO 2 and 3 that it cannot run."""
    if not is_used(config):
        return
    named = f"zero_stage {config.zero_stage}"
    if config.pp > 1:
        yield f"{named} with pp {config.pp}: Megatron-FSDP has no pipeline in its mesh of ranks; --pp 1, or --zero-stage 1"
    if config.reduces_between:
        yield f"overlap_grad_reduce false with {named}: Megatron-FSDP always overlaps it; overlap_grad_reduce true"
    if config.offloads_optimizer:
        yield (
            f"offload optimizer with {named}: its optimizer on the host takes no shards of Megatron-FSDP; --zero-stage 1, "
            "or --offload none"
        )


def refused(config: ParallelConfig) -> Iterator[str]:
    """ZeRO 2 and 3, for forks of Megatron-LM that are not known to have it."""
    if is_used(config):
        yield (
            f"zero_stage {config.zero_stage}: its distributed optimizer shards the optimizer state only; "
            "zero_stage 0 or 1 (--zero-stage 1)"
        )


def unsupported_placement(plan: Plan) -> Iterator[str]:
    """Devices whose memory does not hold what it keeps beyond the plan."""
    if not is_used(plan.config) or plan.config.pp > 1:
        return
    needed, limit = memory.peak_memory(plan)[0] + kept_beyond(plan), memory.limits(plan)[0]
    if needed > limit:
        yield (
            f"zero_stage {plan.config.zero_stage}: Megatron-FSDP keeps more weights and gradients whole than the plan counts, "
            f"{size_text(needed)} of {size_text(limit)} in all; smaller microbatches, more tp, or --zero-stage 1"
        )


def kept_beyond(plan: Plan) -> Bytes:
    """Bytes that it keeps on a device, without a pipeline, beyond what the plan counts: the whole weights of embedding and head
    (ZeRO 3), and whole gradients that wait for their reduction: `WAITING` layers, or the larger one of both."""
    workload, config = plan.workload, plan.config
    model = workload.model
    tied = model.vocab * model.hidden if model.tied_embeddings else 0
    ends = (model.embedding_parameters + model.head_parameters - tied) / config.tp
    whole = ends * workload.bytes_per_value if config.shards_parameters else 0.0
    kinds = (memory.by_sharing(alike, config, 1, False, False) for _, alike in workload.alike(1))
    layer = max(sum(parameters for _, parameters, sharing in kind if sharing > 1) for kind in kinds)
    trained = max(model.embedding_parameters, model.head_parameters) / config.tp if workload.adapter is None else 0.0
    return whole + GRADIENT_BYTES[config.gradient_precision] * max(WAITING * layer, trained)


def assumed(plan: Plan, version: str = "of megatron-core 0.17 or later") -> Iterator[str]:
    """What a launch with it assumes, in the words of a version."""
    config = plan.config
    if not is_used(config):
        return
    yield (
        f"ZeRO {config.zero_stage} is Megatron-FSDP, {version}; with Transformer Engine before 2.10 it "
        f"needs --no-gradient-accumulation-fusion. Its checkpoints ({CHECKPOINTS}) are not those of other launches."
    )
    weights = "embedding and head whole, and " if config.shards_parameters else ""
    yield (
        f"Megatron-FSDP keeps {weights}gradients that wait for their reduction: up to {size_text(kept_beyond(plan))} a device "
        "that the plan does not count."
    )
    if config.tp > 1 or config.cp > 1:
        yield (
            "Megatron-FSDP refuses CUDA_DEVICE_MAX_CONNECTIONS=1, which keeps collectives of tp and cp ahead of products "
            "before Blackwell: they may begin later than in the plan."
        )
    if "amd" in {plan.fleet.spec(device).vendor for device in plan.placement}:
        yield "ROCm's Megatron-LM must be one with Megatron-FSDP: 2b855baf (October 2024) has none, later ones were not read."
    if config.shards < config.dp_cp:
        yield "Megatron-FSDP sums the gradients of the copies in the last microbatch only; the plan does so in each."
