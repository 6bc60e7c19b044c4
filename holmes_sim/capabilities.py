"""What launch targets can express, as plain data: found by asking what their exports refuse by, value by value.

Each value is asked about in an otherwise plain layout of small degrees. Combinations of values may still be refused;
`holmes-sim export` and `plan --for` say by which rule."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeAlias

from holmes_sim import exporters
from sim.errors import NotDefined, NotModelled, PlanError
from sim.formats import catalog
from sim.plan import schedules
from sim.plan.offloading import CHOICES, PARAMETERS, SINGLE_PEER
from sim.plan.parallel_config import RECOMPUTE, USUAL_GRADIENTS, ZERO_STAGES, ParallelConfig
from sim.workload.model import PRECISION_BYTES
from sim.workload.workload import Workload

Facts: TypeAlias = dict[str, tuple[str | int, ...]]
MODEL = "llama-2-7b"
"""The plain model: every training framework has it."""
ALONE: dict[str, Any] = {"dp": 2, "zero_stage": 1, "num_microbatches": (1, 1)}
PIPELINE: dict[str, Any] = {"pp": 2, "dp": 2, "zero_stage": 1, "num_microbatches": (4, 4)}
DEGREES: dict[str, dict[str, Any]] = {
    "tp": {"tp": 2},
    "pp": PIPELINE,
    "dp": ALONE,
    "cp": ALONE | {"cp": 2},
    "ep": ALONE | {"ep": 2},
    "etp": {"tp": 2, "dp": 2, "ep": 2, "etp": 1, "sequence_parallel": True, "num_microbatches": (1, 1)},
    "vpp": PIPELINE | {"vpp": 2, "schedule": "interleaved"},
}
"""Degree -> a layout in which it is 2 (etp: not tp)."""
UNLIKE: dict[str, dict[str, Any]] = {
    "tp": {"tp": 2, "stage_tp": (2, 1), "sequence_parallel": True},
    "dp": {"stage_dp": (2, 4), "microbatch_size": 2},
    "ep": {"tp": 2, "ep": 4, "stage_ep": (4, 2), "etp": 1, "sequence_parallel": True},
    "etp": {"tp": 2, "ep": 2, "etp": 2, "stage_ep": (2, 4), "stage_etp": (2, 1), "sequence_parallel": True},
    "recompute_layers": {"recompute": "full", "recompute_layers": (2, 1)},
    "cp": {"stage_cp": (1, 2), "cp": 1},
    "zero_stage": {"stage_zero": (1, 0)},
    "offload": {"offload": ("optimizer",), "stage_offload": ("optimizer", "none")},
    "recompute": {"recompute": "full", "stage_recompute": ("full", "none")},
    "microbatch_size": {"microbatch_size": 2, "stage_microbatch_size": (1, 2), "num_microbatches": (2, 2), "schedule": "1f1b"},
}
"""What stages may have of their own -> the fields of a pipeline of two stages that have it."""
EXPERTS: dict[str, Any] = {"experts": 8, "experts_per_token": 2}
LATENT: dict[str, Any] = {
    "attention": "mla", "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
}  # fmt: skip
MODELS: dict[str, dict[str, Any]] = {
    "swiglu": {},
    "gelu": {"mlp": "gelu"},
    "relu2": {"mlp": "relu2"},
    "tied_embeddings": {"tied_embeddings": True},
    "experts": EXPERTS,
    "learned_positions": {"learned_positions": 4096},
    "kv_heads": {"kv_heads": 8},
    "shared_ffn_hidden": EXPERTS | {"shared_ffn_hidden": 11008},
    "dense_layers": EXPERTS | {"dense_layers": 1, "dense_ffn_hidden": 11008},
    "n_group": EXPERTS | {"n_group": 4, "topk_group": 2},
    "mla": LATENT,
    "mtp_layers": LATENT | {"mtp_layers": 1},
    "sliding_window": {"sliding_window": 1024},
    "attention_sinks": EXPERTS | {"attention_sinks": True},
}
"""Key of a model, or its kind of MLP or attention -> what it changes of the plain one."""
ATTENTION = ("flash", "unfused")
"""Kinds of attention, one of which must do."""


@functools.cache
def of(target: str) -> Facts:
    """Property -> the values that a target can express. Raises HolmesError for an unknown name."""
    named = {name: _with_schedule(PIPELINE, name) for name in schedules.names()}
    plays = _able(target, named)
    usual = named[plays[0]] if plays else PIPELINE
    again: dict[str, dict[str, Any]] = {name: {"recompute": name} for name in RECOMPUTE}
    again["recompute_layers"] = {"recompute": "full", "recompute_layers": (1,)}
    degrees, single = DEGREES | {"pp": usual}, SINGLE_PEER | {"num_microbatches": (1,)}
    offload = {name: (single if PARAMETERS in kept else ALONE) | {"offload": kept} for name, kept in CHOICES.items() if kept}
    replicas = {"num_microbatches": usual | {"num_microbatches": (5, 3)}}
    return {
        "degrees": _able(target, degrees),
        "schedules": plays,
        "zero_stages": _able(target, {stage: ALONE | {"zero_stage": stage} for stage in ZERO_STAGES}),
        "zero_stages_in_pipelines": _able(target, {stage: usual | {"zero_stage": stage} for stage in ZERO_STAGES}),
        "recompute": _able(target, {name: ALONE | layout for name, layout in again.items()}),
        "recompute_in_pipelines": _able(target, {name: usual | layout for name, layout in again.items()}),
        "offload": _able(target, offload),
        "unlike_stages": _able(target, {name: usual | layout for name, layout in UNLIKE.items()}),
        "unlike_replicas": (*_able(target, replicas), *(("pipelines",) if exporters.runs(target) else ())),
        "precisions": tuple(name for name in PRECISION_BYTES if _trains(target, name)),
        "models": tuple(name for name, facts in MODELS.items() if _takes(target, ALONE, _workload(facts))),
    }


def _with_schedule(layout: dict[str, Any], name: str) -> dict[str, Any]:
    return layout | {"schedule": name} | ({"vpp": 2} if schedules.get(name).CHUNKED else {})


def _able(target: str, layouts: dict[Any, dict[str, Any]]) -> tuple[Any, ...]:
    """The names of the layouts that a target can express; experts are trained where ep or etp are asked about."""
    trained = {name: _workload(MODELS["experts"] if name in ("ep", "etp") else {}) for name in layouts}
    return tuple(name for name, layout in layouts.items() if _takes(target, layout, trained[name]))


def _takes(target: str, layout: dict[str, Any], workload: Workload) -> bool:
    """Whether a target can express a layout, with some kind of attention."""
    return any(_takes_with(target, layout | {"attention": kind}, workload) for kind in ATTENTION)


def _takes_with(target: str, layout: dict[str, Any], workload: Workload) -> bool:
    try:
        config = ParallelConfig(**layout)
    except (PlanError, NotDefined, NotModelled):  # such as cp with unfused attention
        return False
    return next(exporters.unsupported_layout(target, config, workload), None) is None


def _trains(target: str, precision: str) -> bool:
    """Whether a target trains in a precision."""
    layout = ALONE | {"gradient_precision": USUAL_GRADIENTS.get(precision, "fp32")}
    return _takes(target, layout, _workload(precision=precision))


def _workload(facts: Mapping[str, Any] = MappingProxyType({}), precision: str = "bf16") -> Workload:
    """The plain model with some facts, in a batch of 16 sequences of 2,048 tokens."""
    return Workload(replace(catalog.model(MODEL), **facts), 16, 2048, precision)
