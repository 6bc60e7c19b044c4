"""Megatron-LM's flags for facts of a model that no step time depends on, and their defaults.

Those of megatron/training/arguments.py and megatron/core/transformer/transformer_config.py, read at NVIDIA/Megatron-LM d98e8a64
(2026-08-22); and those of zhejianglab/Holmes at dadcc08, which has neither --rotary-base nor --use-rope-scaling."""

from __future__ import annotations

from dataclasses import replace

from holmes_sim.launching.model_facts import Option, Options, Words, nothing
from sim.workload.model import Model


def _base(model: Model) -> Words:
    return {"rotary-base": round(model.launch.rope_theta or 0)}


def _scaling(model: Model) -> Words:
    """Llama 3.1's scaling only: YaRN has further numbers, which models do not say."""
    if model.launch.rope_scaling != "llama3":
        return {}
    return {"use-rope-scaling": True, "rope-scaling-factor": model.launch.rope_factor or 1.0}


def _fraction(model: Model) -> Words:
    return {"rotary-percent": model.launch.rotary_fraction or 1.0}


def _epsilon(model: Model) -> Words:
    return {"norm-epsilon": model.launch.norm_epsilon or 0.0}


def _qk_norm(model: Model) -> Words:
    return {"qk-layernorm": True} if model.launch.qk_norm else {}


def _qkv_bias(model: Model) -> Words:
    return {"add-qkv-bias": True} if model.launch.qkv_bias else {}


def _init(model: Model) -> Words:
    return {"init-method-std": model.launch.init_std or 0.0}


MEGATRON: Options = (
    Option("rope_theta", 10000, "--rotary-base 10000", _base),
    Option("rope_scaling", "none", "no --use-rope-scaling", _scaling),
    Option("rotary_fraction", 1, "--rotary-percent 1.0", _fraction),
    Option("norm_epsilon", 1e-5, "--norm-epsilon 1e-05", _epsilon),
    Option("qk_norm", False, "no --qk-layernorm", _qk_norm),
    Option("qkv_bias", False, "no --add-qkv-bias", _qkv_bias),
    Option("init_std", 0.02, "--init-method-std 0.02", _init),
)
HOLMES: Options = tuple(
    replace(option, name="", words=nothing) if option.fact in ("rope_theta", "rope_scaling") else option for option in MEGATRON
)
