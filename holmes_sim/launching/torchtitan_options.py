"""How torchtitan's llama3 takes facts of a model that no step time depends on, and its own values.

Those of torchtitan 0.3.0 (models/common/rope.py, models/common/nn_modules.py, models/llama3)."""

from __future__ import annotations

import json

from holmes_sim.launching.model_facts import Option, Options, Words, written
from sim.workload.model import Model

LONGEST = 131072
"""max_seq_len of llama3's RoPE (models/llama3/__init__.py)."""
ROPE: Words = {"theta": 500000, "scaling": "llama"}
"""Arguments of its RoPE where the model says nothing: those of Llama 3.1."""
SCALING = {"none": "none", "llama3": "llama"}
FACTOR = 8.0
"""scaling_factor of its RoPE where nothing else is written."""


def _theta(model: Model) -> Words:
    return {"theta": round(model.launch.rope_theta or 0)}


def _scaling(model: Model) -> Words:
    name, factor = SCALING.get(model.launch.rope_scaling or ""), model.launch.rope_factor
    if name is None:
        return {}
    return {"scaling": name} | ({} if factor in (None, FACTOR) else {"scaling_factor": factor or FACTOR})


LLAMA3: Options = (
    Option("rope_theta", 500000, "theta 500000", _theta),
    Option("rope_scaling", "llama3", 'scaling "llama" by 8', _scaling),
    Option("rotary_fraction", 1),
    Option("norm_epsilon", 1e-5),
    Option("qk_norm", False),
    Option("qkv_bias", False),
)


def rope(model: Model) -> str:
    """The arguments of its RoPE, as Python text."""
    return ", ".join(f"{key}={json.dumps(value)}" for key, value in (ROPE | written(model, LLAMA3)).items())
