"""How torchtitan's llama3 and qwen3 take facts of a model that no step time depends on, and their own values.

Those of torchtitan 0.3.0 (models/common/rope.py, models/common/nn_modules.py, models/llama3, models/qwen3)."""

from __future__ import annotations

import json

from holmes_sim.launching.model_facts import Option, Options, Words, written
from sim.workload.model import Model

LONGEST = 131072
"""max_seq_len of RoPE, that of llama3 (models/llama3/__init__.py)."""
SCALING = {"none": "none", "llama3": "llama"}
FACTOR = 8.0
"""scaling_factor of RoPE where nothing else is written."""


def _theta(model: Model) -> Words:
    return {"theta": round(model.launch.rope_theta or 0)}


def _scaling(model: Model) -> Words:
    name, factor = SCALING.get(model.launch.rope_scaling or ""), model.launch.rope_factor
    if name is None:
        return {}
    return {"scaling": name} | ({} if factor in (None, FACTOR) else {"scaling_factor": factor or FACTOR})


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


def rope(model: Model, options: Options) -> str:
    """The arguments of RoPE, as Python text; where the model says nothing, those of Llama 3.1 or of Qwen3."""
    usual: Words = {"theta": 500000, "scaling": "llama"} if options is LLAMA3 else {"theta": 1000000, "scaling": "none"}
    said = usual | written(model, options)
    return ", ".join(f"{key}={json.dumps(value)}" for key, value in said.items() if key != "qk_norm")
