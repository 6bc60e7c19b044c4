"""DualPipeV of FlagScale: its flags, and the plans whose pairs of a forward and a backward it runs.

flagos-ai/FlagScale 16a2dd5 (2025-11-27) with its Megatron-LM, 8479eb35: conditions of training/arguments.py (validate_args,
lines 1200 to 1258), layers of core/transformer/transformer_block.py and transformer_layer.py (`use_dualpipev`), pairs of
flagscale/train/dualpipev (`fb_overlap`). A rank has an even number of layers, whose halves are its two stages, and all ranks
between the first and the last have the same number. Its pairs run the parts of a layer one by one, so that what Megatron-LM
does around whole layers or their networks has no effect in them."""

from __future__ import annotations

from collections.abc import Iterator

from holmes_sim.launching import grouped_experts
from holmes_sim.launching.megatron_flags import Flags
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from sim.workload.workload import Workload

NAME = "dualpipev"
INSIDE = ("core_attn", "mla_up_proj", "moe_act")
"""Modules that are recomputed inside of attention or experts, which its pairs call as a whole."""


def is_used(config: ParallelConfig) -> bool:
    """Whether a plan has the schedule."""
    return config.schedule == NAME


def unsupported(config: ParallelConfig, workload: Workload) -> Iterator[str]:
    """Layouts and models whose pairs it cannot run."""
    if not is_used(config):
        return
    model, named = workload.model, f"schedule {NAME}"
    if not model.experts or config.ep == 1:
        yield f"{named} with ep {config.ep}: its parser has it for experts over ranks only; ep 2 or more"
    elif not grouped_experts.multiplies_together(workload):
        yield f"{named} with experts one after the other: they cannot delay weight gradients; bf16, and experts without biases"
    if config.overlap_grad_reduce or config.overlap_param_gather:
        yield f"{named} with overlap_grad_reduce or overlap_param_gather: its parser refuses them; both false"
    if config.dispatcher != "alltoall":
        yield f"{named} with dispatcher {config.dispatcher}: its pairs have an all_to_all of their own; dispatcher alltoall"
    if config.overlap_shared_experts:
        yield f"{named} with overlap_shared_experts: its parser refuses it; without it"
    if model.mtp_layers:
        yield f"{named} with mtp_layers {model.mtp_layers}: its parser refuses them; 0"
    if model.attention == "mla" and model.q_lora_rank:
        yield f"{named} with q_lora_rank {model.q_lora_rank}: its backward knows queries from one product only; 0"
    if workload.precision not in ("bf16", "fp32", "fp16"):
        yield f"{named} with precision {workload.precision}: passes outside of its pairs are in bf16; bf16"
    yield from _unsupported_recomputation(config)


def _unsupported_recomputation(config: ParallelConfig) -> Iterator[str]:
    if config.recompute == "full":
        yield f"schedule {NAME} with recompute full: forwards of its pairs keep all activations; recompute none"
    if outside := [module for module in config.modules if module not in INSIDE]:
        yield (
            f"schedule {NAME} with recompute_modules {', '.join(outside)}: its pairs run layers in parts, and keep them; "
            f"{', '.join(INSIDE)}"
        )


def unsupported_placement(plan: Plan) -> Iterator[str]:
    """Layers by rank that it cannot say."""
    if not is_used(plan.config):
        return
    for pp_rank in range(plan.config.pp):
        first, second = (plan.stages[stage].layers for stage in plan.stages_of(pp_rank))
        if first != second or not first:
            yield f"stages of pipeline rank {pp_rank} of {first} and {second} layers: it halves a rank's layers; equally many"
    between = {plan.stages[pp_rank].layers for pp_rank in range(1, plan.config.pp - 1)}
    if len(between) > 1:
        numbers = ", ".join(map(str, sorted(2 * number for number in between)))
        yield f"layers {numbers} of ranks between the first and the last: it divides them equally; ranks with equally many"


def flags(plan: Plan) -> Flags:
    """Flags of the schedule and of the layers of each rank, in place of a layout of stages."""
    found: Flags = {"use-dualpipev": True, "moe-fb-overlap": True}
    layers = [2 * plan.stages[pp_rank].layers for pp_rank in range(plan.config.pp)]
    if len(set(layers)) == 1:
        return found
    usual = layers[1] if len(layers) > 2 else 0
    if layers[0] != usual:
        found["decoder-first-pipeline-num-layers"] = layers[0]
    if layers[-1] != usual:
        found["decoder-last-pipeline-num-layers"] = layers[-1]
    return found


def assumed(plan: Plan) -> Iterator[str]:
    """Where a run differs from the plan's step, and what it needs."""
    if is_used(plan.config):
        yield (
            f"Schedule {NAME}: FlagScale waits for most messages outside of pairs, and computes weight gradients with each "
            "backward; in the plan messages overlap compute, and some weight gradients of the cool-down come later."
        )
        yield "Transformer Engine is 2.3 or later: pairs need delayed weight gradients (delay_wgrad_compute)."
