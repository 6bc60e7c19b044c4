"""torchtitan's products in 8 and 4 bits, and its compiled layers.

Read in torchtitan 0.3.0 (components/quantization/float8.py, mx.py and nvfp4.py, distributed/compile.py) and torchao 0.18.0
(float8/float8_linear.py, prototype/moe_training/mxfp8_linear.py, nvfp4_training):

- A converter replaces Linear configurations: float8 has a scale for each row, of its own largest value; mxfp8 one for each 32
  values. Those of logits are left out, as in the plan and in torchtitan's own llama3_405b; so are those of routers, and of two
  hidden states before further tokens. Another converter replaces the grouped products of experts.
- float8 skips a Linear with a side that 16 does not divide. A product sums inputs, outputs or tokens, each of which must be a
  multiple of 16, or of 32 in mxfp8, also where tensor parallelism divides it.
- Weights are gathered in the precision of `mixed_precision_param`: gathers in fp8 (`enable_fsdp_float8_all_gather` of torchao)
  need one scale for a tensor, which its recipes do not offer. So are inputs of products that tensor-parallel ranks gather.
- mxfp8 runs on NVIDIA devices of compute capability 10 or more; float8 on 8.9 or more, and on AMD's gfx942 and later.
- nvfp4 has a scale for a tensor and one for each 16 values, rounds gradients at random, and rotates both inputs of a product,
  whose dimensions 128 must divide. Its converter has no grouped products.
- Casts are kernels of their own unless layers are compiled; asynchronous tensor parallelism needs compiled layers, too. The
  backward of a compiled layer is one node of autograd, so that torch cannot split it (distributed/pipelining/_backward.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from holmes_sim.launching.torchtitan_experts import PADDED
from sim.kernels import tensor_overlap
from sim.kernels.casts import GATHERED
from sim.plan import schedules
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from sim.workload.workload import Workload

TYPES = {"bf16": "bfloat16", "fp32": "float32", "fp8": "bfloat16", "mxfp8": "bfloat16", "nvfp4": "bfloat16"}
"""Precision of a workload -> mixed_precision_param."""
CONVERTERS = {"fp8": "Float8", "mxfp8": "MXFP8", "nvfp4": "NVFP4"}
"""Precision of a workload -> beginning of the names of its converters, of Linear configurations and of grouped experts."""
BLACKWELL = ("mxfp8", "nvfp4")
"""Precisions for devices of NVIDIA of compute capability 10 or more."""
MULTIPLES = {"fp8": 16, "mxfp8": 32, "nvfp4": 128}
"""Precision of a workload -> what must divide the dimensions of a product."""


def unsupported(config: ParallelConfig, workload: Workload) -> Iterator[str]:
    """Precisions, and dimensions of narrow products, that torchtitan does not take."""
    precision = workload.precision
    if precision not in TYPES:
        known = "bf16, fp8, mxfp8, nvfp4 or fp32"
        yield f"precision {precision}: mixed_precision_param supports bfloat16 and float32; {known}"
    if precision == "nvfp4" and workload.model.experts:
        yield "precision nvfp4 with experts: it has no converter of their grouped products; bf16, fp8 or mxfp8"
    if _compiles(config, workload) and schedules.get(config.schedule).SPLITS_BACKWARD:
        also = " and tp_overlap" if tensor_overlap.is_whole(config) else ""
        yield (
            f"schedule {config.schedule.partition('=')[0]} with precision {precision}{also}: "
            "layers are compiled, and their backward is not split; 1f1b or interleaved"
        )
    if precision not in MULTIPLES:
        return
    if workload.adapter is not None:
        yield f"precision {precision} with an adapter: its LoRA on such weights was not tried; bf16"
    if config.fp8_param_gather and precision == "fp8":
        yield "fp8_param_gather: it gathers weights in bf16, because each row has a scale; a stack without fp8_param_gather"
    for name, (size, ranks) in _products(config, workload).items():
        if size % (ranks * MULTIPLES[precision]):
            yield (
                f"precision {precision} with {name} over {ranks} rank{'s'[: ranks > 1]}: its products take multiples of "
                f"{MULTIPLES[precision]}; bf16, or another degree"
            )


def _products(config: ParallelConfig, workload: Workload) -> dict[str, tuple[int, int]]:
    """Name -> (size, ranks that divide it) of the dimensions of products in layers."""
    model, tp = workload.model, config.tp
    found = {"hidden": (model.hidden, tp), "ffn_hidden": (model.ffn_hidden, config.expert_tp if model.experts else tp)}
    if model.dense_ffn_hidden:
        found["dense_ffn_hidden"] = (model.dense_ffn_hidden, tp)
    if model.shared_ffn_hidden:
        found["shared_ffn_hidden"] = (model.shared_ffn_hidden, tp)
    if model.attention == "mla":
        found |= {"q_lora_rank": (model.q_lora_rank, 1), "kv_lora_rank": (model.kv_lora_rank, 1)}
        found["latent keys"] = (model.kv_lora_rank + model.qk_rope_head_dim, 1)
        found["keys and values"] = (model.heads * (model.qk_nope_head_dim + model.v_head_dim), tp)
        found |= {"queries": (model.query_size, tp), "values": (model.value_size, tp)}
    else:
        found["queries, keys and values"] = (model.query_size + model.key_value_size, tp)
    sizes = {f"{name} {size}": (size, ranks) for name, (size, ranks) in found.items()}
    return sizes | {"tokens of a microbatch": (config.microbatch_size * workload.seq_len, config.cp)}


def unsupported_placement(plan: Plan) -> Iterator[str]:
    """Devices on which its mxfp8 and nvfp4 do not run."""
    vendors = {plan.fleet.spec(device).vendor for device in plan.placement}
    if plan.workload.precision in BLACKWELL and vendors != {"nvidia"}:
        of = ", ".join(sorted(vendors))
        yield f"precision {plan.workload.precision} on devices of {of}: it is for those of nvidia; fp8 or bf16"


def _converters(plan: Plan) -> dict[str, str]:
    """Name of a converter -> its arguments, in the order in which they are applied."""
    name, model = CONVERTERS.get(plan.workload.precision), plan.workload.model
    if name is None:
        return {}
    if name == "Float8":
        left_out = ["lm_head"] + (["router.gate"] if model.experts else []) + (["eh_proj"] if model.mtp_layers else [])
        names = f"filter_fqns={json.dumps(left_out)}"
    else:
        parts = ["attention", "shared_experts", "feed_forward"] if model.experts else ["layers"]
        names = f"fqns={json.dumps(parts)}"
    found = {f"{name}LinearConverter": f"{names}, model_compile_enabled=True"}
    if model.experts:
        padded = f", pad_multiple={PADDED['mxfp8']}" if name == "MXFP8" else ""
        found[f"{name}GroupedExpertsConverter"] = f"model_compile_enabled=True{padded}"
    return found


def imports(plan: Plan) -> str:
    """Imports of a module with these settings, each with a line break before it."""
    names = ", ".join(_converters(plan))
    found = f"\nfrom torchtitan.components.quantization import {names}" if names else ""
    return found + ("\nfrom torchtitan.config import CompileConfig" if _compiles(plan.config, plan.workload) else "")


def converted(plan: Plan) -> str:
    """Statements of the function `model` that replace its products; empty where products are not in 8 bits."""
    calls = [f"{name}.Config({arguments}).build().convert(shape)" for name, arguments in _converters(plan).items()]
    return "".join(f"\n    {'return' if call == calls[-1] else 'shape ='} {call}" for call in calls)


def backend(plan: Plan) -> str:
    """spmd_backend: converters of nvfp4 need torchtitan's types in place of DTensors (llama3_debugmodel_nvfp4)."""
    return "spmd_types" if plan.workload.precision == "nvfp4" else "partial_dtensor"


def settings(plan: Plan) -> Iterator[str]:
    """Statements of the config function: compiled layers."""
    if _compiles(plan.config, plan.workload):
        asynchronous = ", enable_async_tensor_parallel=True" if tensor_overlap.is_whole(plan.config) else ""
        yield f'config.compile = CompileConfig(enable=True, components=["model"]{asynchronous})'


def assumed(plan: Plan) -> Iterator[str]:
    """What such a launch is, where it is not what the plan's step assumes."""
    precision, config = plan.workload.precision, plan.config
    if precision in CONVERTERS:
        yield "torchao is installed (`pip install torchao==0.18.0`). Layers are compiled; their casts join other kernels."
    if precision == "fp8":
        scaling = "current" if config.current_scaling else "delayed"
        yield f"float8 scales each row by its own largest value; the plan's step assumes {scaling} scaling of tensors."
    if precision in CONVERTERS and config.tp > 1:
        size = GATHERED[precision]
        yield f"Tensor-parallel ranks gather inputs of products in bf16; the plan counts {size:g} bytes for each value."
    if tensor_overlap.is_whole(config):
        yield "Asynchronous tensor parallelism needs symmetric memory (NVLink) among the ranks of a group."


def _compiles(config: ParallelConfig, workload: Workload) -> bool:
    return workload.precision in CONVERTERS or tensor_overlap.is_whole(config)
