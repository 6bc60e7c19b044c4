"""A plan as flags of Megatron-LM, which its forks share: parallel degrees, model, batches, optimizer, recomputation.

Names and rules are those of megatron/training/arguments.py and megatron/core/transformer/transformer_config.py of megatron-core
0.19.2 (2026), whose own parser reads them in tests/peers/megatron.py. Keys are flag names without leading dashes; the value
True means a flag without a value.
"""

from __future__ import annotations

from collections.abc import Iterator

from holmes_sim.launching import (
    context,
    environment,
    expert_overlap,
    grouped_experts,
    head,
    megatron_precision,
    model_keys,
    nets,
    replicas,
    tied,
)
from sim.plan.expert_parallelism import DEDUPLICATED
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from sim.workload.workload import Workload

Flags = megatron_precision.Flags
SCHEDULES = ("1f1b", "interleaved")
LAYOUT = "pipeline-model-parallel-layout"


def text(flags: Flags) -> str:
    """One flag per line, followed by its value."""
    return "".join(f"--{name}\n" if value is True else f"--{name} {value}\n" for name, value in flags.items())


def degrees(plan: Plan) -> Flags:
    """Parallel degrees in the default order tp-cp-ep-dp-pp; dp follows from the number of ranks."""
    config = plan.config
    found: Flags = {
        "tensor-model-parallel-size": config.tp,
        "pipeline-model-parallel-size": config.pp,
        "context-parallel-size": config.cp,
    }
    found |= context.flags(config)
    if plan.workload.model.experts:
        found |= {"expert-model-parallel-size": config.ep, "expert-tensor-parallel-size": config.expert_tp}
    if config.sequence_parallel and config.tp > 1:
        found["sequence-parallel"] = True
    return found


def without_layers(plan: Plan) -> Iterator[str]:
    """A stage without layers, for targets whose list of layers by stage is not known to allow 0."""
    for index, stage in enumerate(plan.stages):
        if not stage.layers:
            yield f"stages[{index}] without layers: its list of layers by stage is not known to allow 0; stages with layers"


def layout(plan: Plan) -> str:
    """Stages in the syntax of --pipeline-model-parallel-layout: E embedding, t layer, m layer that predicts a further
    token, L head and loss; virtual stages in order.

    (megatron/core/transformer/pipeline_parallel_layer_layout.py: stage i is on pipeline rank i % pp.)
    """
    stages = [f"t*{stage.layers}" if stage.layers > 1 else "t" * stage.layers for stage in plan.stages]
    return "E" + "|".join(stages) + "m" * plan.workload.model.mtp_layers + "L"


def batches(plan: Plan) -> Flags:
    """Flags of the batch: microbatch size (of a rank of the first stage), global batch size and sequence length."""
    workload = plan.workload
    return {
        "micro-batch-size": plan.config.of_pp_rank(0).microbatch_size,
        "global-batch-size": workload.global_batch_size,
        "seq-length": workload.seq_len,
    }


def shape(plan: Plan) -> Flags:
    """Flags of the model's shape."""
    model = plan.workload.model
    found: Flags = {
        "num-layers": model.layers,
        "hidden-size": model.hidden,
        "ffn-hidden-size": model.ffn_hidden,
        "num-attention-heads": model.heads,
    }
    if model.attention == "standard":
        found["kv-channels"] = model.head_dim
    if model.kv_heads < model.heads:
        found |= {"group-query-attention": True, "num-query-groups": model.kv_heads}
    found["max-position-embeddings"] = model.learned_positions or plan.workload.seq_len
    found["position-embedding-type"] = "learned_absolute" if model.learned_positions else "rope"
    if model.mlp != "gelu":
        found |= {"swiglu" if model.mlp == "swiglu" else "squared-relu": True, "disable-bias-linear": True}
        found |= {"normalization": "RMSNorm", "attention-dropout": 0.0, "hidden-dropout": 0.0}
    if not model.tied_embeddings:
        found["untie-embeddings-and-output-weights"] = True
    if model.experts:
        found |= {"num-experts": model.experts, "moe-router-topk": model.experts_per_token}
        found |= {"moe-router-pre-softmax": True} if model.experts_per_token == 1 else {}
        found |= {"moe-ffn-hidden-size": model.ffn_hidden} | dispatcher(plan.config) | capacity(plan.config)
        found |= {"moe-grouped-gemm": True} if grouped_experts.multiplies_together(plan.workload) else {}
    if model.shared_ffn_hidden:
        found["moe-shared-expert-intermediate-size"] = model.shared_ffn_hidden
    return found | model_keys.flags(model)


def dispatcher(config: ParallelConfig) -> Flags:
    """Flags of the exchange of tokens among experts (megatron/core/transformer/transformer_config.py)."""
    found: Flags = {"moe-token-dispatcher-type": "flex" if config.dispatcher in DEDUPLICATED else config.dispatcher}
    if config.dispatcher in DEDUPLICATED:
        found["moe-flex-dispatcher-backend"] = config.dispatcher
    if config.overlap_expert_communication:
        found["overlap-moe-expert-parallel-comm"] = True
    if config.overlap_shared_experts:
        found["moe-shared-expert-overlap"] = True
    return found


def capacity(config: ParallelConfig) -> Flags:
    """Flags of the tokens that an expert takes at most; none where no token is dropped."""
    if config.capacity_factor is None:
        return {}
    found: Flags = {"moe-expert-capacity-factor": config.capacity_factor}
    return found | ({"moe-pad-expert-input-to-capacity": True} if config.pad_to_capacity else {})


def optimizer(plan: Plan) -> Flags:
    """Flags of the distributed optimizer and of its overlap with compute."""
    config = plan.config
    found: Flags = {}
    if config.zero_stage:
        found["use-distributed-optimizer"] = True
    if config.shards < config.dp_cp:
        found["num-distributed-optimizer-instances"] = config.dp_cp // config.shards
    if config.reduces_behind:
        found["overlap-grad-reduce"] = True
    if config.gathers_ahead:
        found["overlap-param-gather"] = True
    if config.offloads_optimizer:
        found |= {"optimizer-cpu-offload": True, "optimizer-offload-fraction": 1.0, "use-precision-aware-optimizer": True}
    if plan.workload.optimizer == "adam-bf16-moments":
        found |= {"use-precision-aware-optimizer": True, "exp-avg-dtype": "bf16", "exp-avg-sq-dtype": "bf16"}
    return found


def recomputation(plan: Plan) -> Flags:
    """Flags of activation recomputation, and of activations on the hosts, which take none beside them (`launching.offload`).

    Flash attention stores no scores, so `selective` recomputes nothing with it."""
    config = plan.config
    if config.offloads_activations:
        return {"cpu-offloading-num-layers": plan.workload.model.layers - 1}
    if config.recompute_layers:
        return {
            "recompute-granularity": "full",
            "recompute-method": "block",
            "recompute-num-layers": max(config.recompute_layers),
        }
    if config.recompute == "full":
        return {"recompute-granularity": "full", "recompute-method": "uniform", "recompute-num-layers": 1}
    if config.modules == ("core_attn",):
        return {"recompute-granularity": "selective"}
    if config.modules:
        return {"recompute-granularity": "selective", "recompute-modules": " ".join(config.modules)}
    return {}


def assumed(plan: Plan) -> Iterator[str]:
    """Settings that are left to the framework or that no flag expresses."""
    config, workload = plan.config, plan.workload
    algorithms = {group.kind: group.collective for group in plan.groups}
    chosen = ", ".join(f"{kind} {name}" for kind, name in algorithms.items() if kind != "pp")
    if chosen:
        yield f"NCCL chooses the algorithm of every collective and the order of its rings; the plan assumes {chosen}."
    if config.vpp > 1 and config.schedule == "interleaved" and max(config.num_microbatches) == config.pp:
        yield (
            f"With as many microbatches as pipeline ranks, {config.pp}, the plan's step runs all forwards first, as "
            "Megatron-LM did until November 2024 (4295be1a); later versions begin backwards earlier."
        )
    if config.recompute == "selective" and not config.modules:
        yield "recompute selective has no effect: flash attention keeps no scores that could be computed again."
    if config.capacity_factor is not None and workload.model.experts:
        yield (
            f"Each expert drops the tokens above {config.capacity_factor:g} times the mean, those of least probability: that "
            "changes what is trained."
        )
    if workload.model.experts:
        groups = "" if workload.model.n_group > 1 else " groups,"
        capacity = "" if config.capacity_factor is not None else ", capacity"
        yield f"Options of the router (score function,{groups} bias, auxiliary loss{capacity}) are left to the framework."
    if workload.model.experts and workload.model.experts_per_token == 1:
        yield (
            "A softmax over all experts comes before the choice of one (--moe-router-pre-softmax): Megatron-LM takes no "
            "softmax router of one expert without it. Where the router has a sigmoid, the flag changes nothing."
        )
    yield from grouped_experts.assumed(plan)
    yield from megatron_precision.assumed(plan)
    if workload.model.mlp == "gelu":
        yield "Dropout is the default, 0.1; models without gelu are trained without dropout."
    if not nets.one_vendor(plan, range(config.world_size)):
        yield "The fleet's unified communicator provides torch's backend nccl on the devices of all vendors."
    if "amd" in {plan.fleet.spec(device).vendor for device in plan.placement}:
        yield "Megatron-LM is ROCm's own (ROCm/Megatron-LM)."


def unsupported_layout(config: ParallelConfig, workload: Workload, schedules: tuple[str, ...] = SCHEDULES) -> Iterator[str]:
    """Layouts that neither Megatron-LM nor a fork with these schedules can express."""
    model = workload.model
    yield from (*replicas.unequal(config), *tied.shards(config, workload))
    if config.schedule not in schedules:
        yield f"schedule {config.schedule}: it supports 1F1B, plain or interleaved; --schedule 1f1b or interleaved"
    if config.schedule == "interleaved" and config.vpp == 1:
        yield "schedule interleaved: with vpp 1 it runs plain 1F1B; vpp 2 or more, or --schedule 1f1b"
    if config.gathers_ahead and not config.reduces_behind:
        yield (
            "overlap_grad_reduce false: --overlap-param-gather requires --overlap-grad-reduce; "
            "both of them, or overlap_param_gather false too"
        )
    yield from megatron_precision.unsupported(config, workload)
    if 0 < model.learned_positions < workload.seq_len:
        yield (
            f"learned_positions {model.learned_positions}: fewer than seq_len {workload.seq_len}; "
            "as many positions as a sequence has tokens, or 0 for rotary ones"
        )
    if model.kv_heads % config.tp and config.tp % model.kv_heads:
        yield (
            f"kv_heads {model.kv_heads}: neither a multiple nor a divisor of tp {config.tp}; a tp that divides them or is a "
            "multiple"
        )
    yield from context.unsupported(config, workload)
    yield from (*expert_overlap.unsupported(config, workload), *grouped_experts.unsupported(config, workload))
    if config.cuda_graphs:
        yield f"cuda_graphs {', '.join(config.cuda_graphs)}: the export does not set them; leave it out"
    if config.pad_to_capacity and config.dispatcher == "deepep":
        yield "pad_to_capacity with dispatcher deepep: its config refuses both; dispatcher alltoall or hybridep, or no padding"
    if model.experts and config.tp > 1 and not config.sequence_parallel:
        yield f"sequence_parallel false: experts with tp {config.tp} require it; sequence_parallel true, or tp 1"
    if model.experts and config.expert_tp > 1 and model.mlp == "gelu":
        yield f"mlp gelu: biases of experts are not sharded by tp {config.expert_tp}; etp 1, or mlp swiglu or relu2"


def few_groups(config: ParallelConfig, workload: Workload) -> Iterator[str]:
    """Fewer heads of keys and values than tp ranks, for forks of versions that do not copy them: their TransformerConfig wants
    a multiple of tp (FlagScale's 8479eb35, line 776; zhejianglab/Holmes dadcc08, line 286)."""
    number, tp = workload.model.kv_heads, max((config.tp, *config.stage_tp))
    if number % tp and tp % number == 0:
        yield f"kv_heads {number}: its version of Megatron-LM wants a multiple of tp {tp}; a tp that divides them"


def unsupported_optimizer(config: ParallelConfig, workload: Workload) -> Iterator[str]:
    """Optimizers without flags, and those that need the distributed optimizer."""
    if workload.optimizer not in ("adam", "adam-bf16-moments"):
        yield f"optimizer {workload.optimizer}: it keeps fp32 weights, and moments of 8 bits are fp8; adam or adam-bf16-moments"
    if workload.optimizer == "adam-bf16-moments" and not config.zero_stage:
        yield "zero_stage 0: moments in bf16 need the distributed optimizer; ZeRO 1"


def unsupported_placement(plan: Plan) -> Iterator[str]:
    """Stages and devices that neither Megatron-LM nor its forks can express."""
    yield from environment.unsupported(plan)
    yield from head.unsupported(plan)
    vendors = list(dict.fromkeys(plan.fleet.spec(device).vendor for device in plan.placement))
    if "huawei" in vendors:
        yield "vendor huawei: it is built for CUDA and ROCm; devices of NVIDIA or AMD"
    if len(vendors) > 1 and plan.fleet.communicator != "unified" and not nets.one_vendor(plan, range(plan.config.world_size)):
        yield (
            f"vendors {', '.join(vendors)}: NCCL does not join them, and gloo cannot send tensors of devices; "
            "devices of one vendor, or a fleet with communicator unified"
        )
