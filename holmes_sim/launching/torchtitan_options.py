"""How torchtitan's models take facts of a model that no step time depends on, and their own values.

Those of torchtitan 0.3.0 (models/common/rope.py, models/common/nn_modules.py, models/llama3, models/qwen3, models/deepseek_v3,
models/gpt_oss). YaRN is taken by deepseek_v3 and gpt_oss, whose attention scales its scores by it, with 4,096 tokens of
pretraining."""

from __future__ import annotations

from holmes_sim.launching.model_facts import Option, Options, Words, written
from sim.workload.model import Model

LONGEST = 131072
"""max_seq_len of RoPE, that of llama3 (models/llama3/__init__.py)."""
SCALING = {"none": "none", "llama3": "llama"}
FACTOR = 8.0
"""scaling_factor of RoPE where nothing else is written."""
YARN = "yarn"


def _theta(model: Model) -> Words:
    return {"theta": round(model.launch.rope_theta or 0)}


def _scaling(model: Model) -> Words:
    name, factor = SCALING.get(model.launch.rope_scaling or ""), model.launch.rope_factor
    if name is None:
        return {}
    return {"scaling": name} | ({} if factor in (None, FACTOR) else {"scaling_factor": factor or FACTOR})


def _scaling_or_yarn(model: Model) -> Words:
    if model.launch.rope_scaling != YARN:
        return _scaling(model)
    return {"scaling": YARN, "rope_factor": model.launch.rope_factor or 1.0}


def _norms(model: Model) -> Words:
    return {"qk_norm": bool(model.launch.qk_norm)}


LLAMA3: Options = (
    Option("rope_theta", 500000, "theta 500000", _theta),
    Option("rope_scaling", "llama3", 'scaling "llama" by 8', _scaling),
    Option("rotary_fraction", 1),
    Option("norm_epsilon", 1e-5),
    Option("qk_norm", False),
    Option("qkv_bias", False),
)
QWEN3: Options = (
    Option("rope_theta", 1000000, "theta 1000000", _theta),
    Option("rope_scaling", "none", 'scaling "none"', _scaling),
    Option("rotary_fraction", 1),
    Option("norm_epsilon", 1e-6),
    Option("qk_norm", True, words=_norms),
    Option("qkv_bias", False),
)


DEEPSEEK: Options = (
    Option("rope_theta", 10000, "theta 10000", _theta),
    Option("rope_scaling", YARN, 'scaling "yarn" by 40', _scaling_or_yarn),
    Option("norm_epsilon", 1e-5),
    Option("qk_norm", True),
    Option("qkv_bias", False),
)
GPT_OSS: Options = (
    Option("rope_theta", 150000, "theta 150000", _theta),
    Option("rope_scaling", YARN, 'scaling "yarn" by 32', _scaling_or_yarn),
    Option("rotary_fraction", 1),
    Option("norm_epsilon", 1e-5),
    Option("qk_norm", False),
    Option("qkv_bias", True),
)
USUAL: dict[Options, Words] = {
    LLAMA3: {"theta": 500000, "scaling": "llama"},
    QWEN3: {"theta": 1000000, "scaling": "none"},
    DEEPSEEK: {"theta": 10000, "scaling": YARN, "rope_factor": 40.0},
    GPT_OSS: {"theta": 150000, "scaling": YARN, "rope_factor": 32.0},
}
"""Arguments of RoPE where a model says nothing: those of Llama 3.1, Qwen3, DeepSeek-V3 and gpt-oss."""


def rope(model: Model, options: Options) -> str:
    """The arguments of RoPE, as Python text; where the model says nothing, those of `USUAL`."""
    said = USUAL[options] | written(model, options)
    if said["scaling"] != YARN:
        said.pop("rope_factor", None)
    if options is GPT_OSS:
        said |= {"truncate": False}
    return ", ".join(f"{key}={value!r}".replace("'", '"') for key, value in said.items() if key != "qk_norm")
