"""Adapters of a workload (`sim.workload.adapter`) in the words of launch targets.

Megatron-Bridge: peft.LoRA (src/megatron/bridge/peft/lora.py at 067f987, 2026-08-22), whose modules are Megatron-Core's fused
ones. torchtitan: LoRAConverter (components/lora.py, 0.3.0), which takes the names of Linear configurations of llama3; `wkv` is
one configuration of keys and values. DeepSpeed: Hugging Face PEFT and bitsandbytes, whose names are ours."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from sim.workload.workload import Workload

MEGATRON = {
    "linear_qkv": ("q_proj", "k_proj", "v_proj"),
    "linear_proj": ("o_proj",),
    "linear_fc1": ("gate_proj", "up_proj"),
    "linear_fc2": ("down_proj",),
}
"""Module of Megatron-Core -> ours."""
TORCHTITAN = {
    "wq": ("q_proj",), "wkv": ("k_proj", "v_proj"), "wo": ("o_proj",), "w1": ("gate_proj",), "w2": ("down_proj",),
    "w3": ("up_proj",),
}  # fmt: skip
"""Linear configuration of torchtitan's llama3 -> our modules."""

PEFT = '''

def adapted(model):
    """The model with the adapters of the plan; all its other weights are frozen."""
    from peft import LoraConfig, get_peft_model

    return get_peft_model(model, LoraConfig(r={r}, lora_alpha={alpha}, lora_dropout=0.0, target_modules={names}))
'''
QUANTISATION = '''

def quantisation():
    """The model's from_pretrained takes it as quantization_config."""
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.{wide}, bnb_4bit_quant_storage=torch.{wide},
    )
'''


def modules(workload: Workload, names: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """The modules of a target that have adapters; empty without adapters."""
    own = _own(workload)
    return tuple(name for name, ours in names.items() if own & set(ours))


def peft(workload: Workload) -> str:
    """Functions for a Python module that make adapters by Hugging Face PEFT, and 4-bit weights by bitsandbytes; empty without
    adapters. torch is imported there."""
    adapter = workload.adapter
    if adapter is None:
        return ""
    names = json.dumps([name for name, *_ in adapter.modules(workload.model)])
    found = PEFT.format(r=adapter.r, alpha=2 * adapter.r, names=names)
    wide = {"bf16": "bfloat16", "fp16": "float16"}.get(workload.precision, "float32")
    return found + (QUANTISATION.format(wide=wide) if adapter.base_precision else "")


def peft_assumed(workload: Workload) -> Iterator[str]:
    """What a launch with `peft` assumes of the model."""
    if adapter := workload.adapter:
        stored = f", stored as {adapter.base_precision} (quantisation())" if adapter.base_precision else ""
        yield f"The model is adapted(model) of a pretrained one{stored}, with modules named as in Llama."


def refused(workload: Workload) -> Iterator[str]:
    """A fault of targets that train all weights."""
    if workload.adapter is not None:
        yield "adapter: it trains all weights; leave it out, or a target with LoRA (megatron, torchtitan, deepspeed)"


def unsupported(workload: Workload, names: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """Faults of targets with other modules than ours, and with base weights of full width alone."""
    if workload.adapter is None:
        return
    if workload.adapter.base_precision:
        yield f"adapter.base_precision {workload.adapter.base_precision}: its base weights are not quantised; leave it out"
    own = _own(workload)
    for name, ours in names.items():
        has = {module for module in ours if module != "gate_proj" or workload.model.mlp == "swiglu"}
        if own & has and not has <= own:
            lacks = ", ".join(sorted(has - own))
            yield f"adapter.target_modules without {lacks}: its {name} is one module; {', '.join(sorted(has))} together"


def _own(workload: Workload) -> set[str]:
    return {name for name, *_ in workload.adapter.modules(workload.model)} if workload.adapter is not None else set()
