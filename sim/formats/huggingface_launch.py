"""Facts of a config.json that no step time depends on: rotary positions, norms, biases, initial weights.

Keys and defaults are those of `configuration_<family>.py` in huggingface/transformers, src/transformers/models; transformers 5
puts the rotary keys into `rope_parameters`. A key that is absent leaves its fact unknown, unless `DEFAULTS` has it. Whether
queries and keys have norms and biases follows from the family's code (`modeling_<family>.py`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from sim.workload.launch_facts import LaunchFacts

Fault = Callable[[str, str], None]

NUMBERS = {
    "rope_theta": ("rope_theta", "rotary_emb_base"),
    "rotary_fraction": ("partial_rotary_factor", "rotary_pct"),
    "norm_epsilon": ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon"),
    "init_std": ("initializer_range",),
}
"""Fact -> its keys in a config.json."""
FLAGS = {"qk_norm": "use_qk_norm", "qkv_bias": "attention_bias"}
DEFAULTS: dict[str, dict[str, Any]] = {
    "llama": {"rope_theta": 10000.0, "qk_norm": False, "qkv_bias": False},
    "mistral": {"qk_norm": False, "qkv_bias": False},
    "mixtral": {"qk_norm": False, "qkv_bias": False},
    "qwen2": {"qk_norm": False, "qkv_bias": True},
    "qwen2_moe": {"qk_norm": False, "qkv_bias": True},
    "qwen3": {"qk_norm": True, "qkv_bias": False},
    "qwen3_moe": {"qk_norm": True, "qkv_bias": False},
    "deepseek_v2": {"qk_norm": True},
    "deepseek_v3": {"qk_norm": True},
    "kimi_k2": {"qk_norm": True},
}
"""Family -> facts of its code, and of keys that a file may leave out."""
SCALING = {"default": "none", "llama3": "llama3", "yarn": "yarn"}
"""`rope_type` -> our name. Other types are left unknown."""


def read(values: Mapping[str, Any], fault: Fault) -> LaunchFacts:
    """The facts of a config.json; `fault(key, text)` is called for each wrong value."""
    rotary = values.get("rope_parameters") or values.get("rope_scaling") or {}
    if not isinstance(rotary, dict):
        fault("rope_parameters" if values.get("rope_parameters") else "rope_scaling", "a mapping of keys is expected here")
        rotary = {}
    found: dict[str, Any] = dict(DEFAULTS.get(str(values["model_type"]), {}))
    flat = {**rotary, **values}
    for fact, keys in NUMBERS.items():
        for key in keys:
            if flat.get(key) is not None:
                found[fact] = _number(flat[key], key, fault)
                break
    for fact, key in FLAGS.items():
        if isinstance(values.get(key), bool):
            found[fact] = values[key]
    if "rope_parameters" in values or "rope_scaling" in values:
        found |= _scaling(rotary, fault)
    try:
        return LaunchFacts(**found)
    except ValueError as error:
        fault(next(key for key in NUMBERS["rotary_fraction"] if key in flat), str(error))
        return LaunchFacts()


def _scaling(rotary: Mapping[str, Any], fault: Fault) -> dict[str, Any]:
    name = SCALING.get(rotary.get("rope_type") or rotary.get("type") or "default")
    if name in (None, "none"):
        return {} if name is None else {"rope_scaling": name}
    factor = _number(rotary.get("factor"), "rope_scaling", fault)
    return {} if factor is None else {"rope_scaling": name, "rope_factor": factor}


def _number(value: object, key: str, fault: Fault) -> float | None:
    """The number of a key. YAML 1.1, which reads the file, takes 1e-05 for text."""
    if isinstance(value, str) and re.fullmatch(r"\d+(\.\d*)?[eE][+-]?\d+", value):
        value = float(value)
    if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
        return float(value)
    fault(key, f"a number above 0 is expected here, not {value!r}")
    return None
