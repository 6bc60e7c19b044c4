"""Reasons of exporters that lie behind a target's parser: it takes the launch, and then does not run the plan as it is.

Of each target: the beginning of a refusal, as a pattern, and what the target does, with the place in its code. All other
refusals must be the parser's own."""

from __future__ import annotations

import re

MEGATRON = {
    r"schedule (gpipe|1f1b-deepspeed|zb-\w+|dualpipev)": "no flag names the schedule; it runs 1F1B "
    "(core/pipeline_parallel/schedules.py, get_forward_backward_func)",
    r"num_microbatches": "no flag has a number for each replica; all have the same (core/num_microbatches_calculator.py)",
    r"stage_\w+": "no flag has a value for each stage (core/parallel_state.py, RankGenerator)",
    r"recompute_layers": "--recompute-num-layers is one number for all stages (core/transformer/transformer_block.py, block)",
    r"tied_shards": "the end stages all_reduce the whole gradient (core/distributed/finalize_model_grads.py)",
    r"zero_stage \d with pp": "the mesh of Megatron-FSDP has no pipeline (core/distributed/fsdp/mcore_fsdp_adapter.py, 751)",
    r"overlap_grad_reduce false with zero_stage": "Megatron-FSDP always overlaps (megatron_fsdp.py, 333)",
    r"attention flash": "Transformer Engine has no fused attention in fp32 and raises at the first forward",
    r"sequence_parallel false: experts": "raised by the first forward (core/transformer/moe/moe_layer.py, 636)",
    r"gradient_precision": "no flag names it; gradients have another precision (training/arguments.py, 1207)",
    r"offload activations with recompute": "the launch leaves recomputation out, which its configuration refuses beside it",
    r"offload optimizer with (optimizer|precision|zero_stage \d)": "its optimizer on the hosts is for bf16 with fp32 "
    "moments, and takes no shards of Megatron-FSDP (core/optimizer/cpu_offloading/hybrid_optimizer.py, 115)",
    r"zero_stage 0: moments in bf16": "raised by OptimizerConfig (core/optimizer/optimizer_config.py)",
    r"seq_len": "raised by the first forward (core/tensor_parallel/mappings.py, 72)",
    r"tp_overlap": "Transformer Engine's user buffers are bf16 or 8 bits (training/initialize.py)",
    r"cuda_graphs": "the export writes no flag for graphs (--cuda-graph-impl); no search makes such plans",
    r"(kv_)?heads \d+: cp_algo": "raised by Transformer Engine (AttnFuncWithCPAndQKVOA2A) at the first forward",
}
FLAGSCALE = MEGATRON | {
    r"dispatcher hybridep": "no flag names it; flex is DeepEP's there (core/transformer/moe/token_dispatcher.py)",
    r"offload activations": "the launch leaves it out: a single export writes it, for Megatron-LM",
    r"ep \d+ with zero_stage": "the mesh of its Megatron-FSDP has no experts (mcore_fsdp_adapter.py, 187)",
    r"offload optimizer: not tried": "with meshes of device types it was not tried",
    r"stages\[\d+\] without layers": "with meshes, layers by stage are a list whose zeros were not tried",
}
"""FlagScale 16a2dd5 with its Megatron-LM, 8479eb35; lines are those of Megatron-LM d98e8a64 where both are alike."""
HOLMES = {key: MEGATRON[key] for key in MEGATRON if not key.startswith("zero_stage")} | {
    r"zero_stage [23]": "its distributed optimizer is ZeRO 1, whatever the plan says (core/distributed)",
    r"precision (fp8|mxfp8|nvfp4|tf32)": "no flag names it, or its legacy models leave it out (legacy/model/transformer.py)",
    r"fp8_param_gather": "no flag names it",
    r"recompute_modules": "no flag names them; selective recomputes the attention core",
    r"offload": "no flag names it",
    r"tp_overlap": "its user buffers were not tried with its pipeline of device types",
    r"stages\[\d+\] without layers": "its hetero-pipeline-stages has lists of layers whose zeros were not tried",
    r"optimizer |model |cp_algo": "no flag names it",
    r"kv_heads \d+: its version": "raised by TransformerConfig (core/transformer/transformer_config.py, 286) when it is built",
    r"stages\[\d+\].layers: it is empty": "its hetero-pipeline-stages has lists of layers whose zeros were not tried",
}
"""zhejianglab/Holmes dadcc08."""
DEEPSPEED = {
    r"schedule": "no key names it; TrainSchedule is its 1F1B (runtime/pipe/schedule.py)",
    r"num_microbatches": "gradient_accumulation_steps is one number",
    r"stage_\w+": "no key has a value for each stage (runtime/pipe/topology.py)",
    r"(cp|ep) \d+": "no key of a launch names it: layers and their groups are the user's own (utils/groups.py)",
    r"vpp \d+": "no key names it; a rank has one part of the layers (runtime/pipe/module.py)",
    r"tied_shards": "the end stages all_reduce the whole gradient (runtime/pipe/module.py, allreduce_tied_weight_gradients)",
    r"zero_shard_size": "no key of ZeRO 1 and 2 names it",
    r"zero_stage [23] with pp": "raised by PipelineEngine when it is built (runtime/pipe/engine.py)",
    r"zero_stage 0 with bf16": "BF16_Optimizer shards its state (runtime/bf16_optimizer.py)",
    r"recompute": "activation_checkpoint_interval is one for all layers of a pipeline, and recomputes them whole",
    r"precision": "no key of a launch names it",
    r"gradient_precision": "raised when the engine is built (runtime/engine.py), or gradients have another one",
    r"offload (activations|parameters)": "the launch leaves it out",
    r"offload optimizer": "its optimizer on the hosts needs ZeRO and fp32 moments; in a pipeline it was not tried",
    r"optimizer ": "the launch leaves it out: the optimizer is the user's own",
}
"""DeepSpeed 0.19.8."""
TORCHTITAN = {
    r"num_microbatches": "no field has a number for each replica",
    r"stage_\w+": "no field has a value for each stage",
    r"recompute_layers": "FullAC is for all layers",
    r"recompute selective": "SelectiveAC keeps products and recomputes the rest",
    r"gradient_precision": "mixed_precision_reduce is fp32",
    r"attention": "its attention is fused",
    r"offload": "the launch leaves it out; CPUOffloadPolicy moves weights and gradients, too",
    r"stages\[\d+\].layers: it is empty": "its optimizer finds no parameters (components/optimizer/optimizer.py, 200)",
    r"cp_algo": "no field names it; its ranks gather keys and values (distributed/context_parallel/api.py)",
    r"seq_len": "a mask block, or a part of tp and cp, would not be whole: raised by the first forward",
    r"zero_stage": "FSDP shards over all ranks, or gathers in each microbatch (distributed/fsdp.py)",
    r"schedule": "torch has another order of messages for it, or runs it as another one",
    r"tied_shards|cuda_graphs|optimizer |tp_overlap": "the launch leaves it out",
    r"capacity_factor|pad_to_capacity|dispatcher|overlap_": "no field names it with these degrees; the launch leaves it out",
    r"model |mlp |learned_positions|precision|fp8_param_gather|ep |etp |sequence_parallel": "it builds another model",
}
"""torchtitan 0.3.0."""
BEHIND = {"megatron": MEGATRON, "flagscale": FLAGSCALE, "holmes": HOLMES, "deepspeed": DEEPSPEED, "torchtitan": TORCHTITAN}


def behind(target: str, refusal: str) -> str:
    """What the target does with a plan that its parser takes and the exporter refuses; empty where that is not known."""
    return next((f"{name}: {what}" for name, what in BEHIND[target].items() if re.match(name, refusal)), "")
