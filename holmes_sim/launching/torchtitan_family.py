"""A model of torchtitan that takes the shape of a plan: its names, the text of a shape, statements that change its layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from holmes_sim.launching.model_facts import Options
from sim.kernels.compute import rank_kernels
from sim.plan.parallel_config import ParallelConfig
from sim.workload.kernels import Gemm
from sim.workload.model import Model
from sim.workload.workload import Workload

Check: TypeAlias = Callable[[ParallelConfig, Workload], Iterator[str]]
Text: TypeAlias = Callable[[Model], str]
DISPATCHERS = {"alltoall": "standard", "deepep": "deepep", "hybridep": "hybridep"}
"""Our dispatcher -> moe_comm_backend (models/common/config_utils.py, make_token_dispatcher_config)."""


@dataclass(frozen=True, slots=True)
class Family:
    """A model of torchtitan 0.3.0.

    - `name`: its package; `config`: its class; `base`: the function whose settings a plan starts from.
    - `options`: how it takes facts of a model.
    - `classes`: what its text imports of torchtitan.models.common.
    - `shape`: keyword arguments of its configuration as Python text, with names in braces (`torchtitan_models.text`).
    - `after`: statements that change the `layers` of `shape`, each with a line break before it.
    - `untied`, `tied`: initial weights of an embedding that is, or is not, the output projection.
    - `unsupported`, `assumed`: what it does not take of a plan, and what differs from the plan's step.
    """

    name: str
    config: str
    base: str
    options: Options
    classes: str
    shape: str
    after: Text
    untied: str
    tied: str
    unsupported: Check
    assumed: Check


def products(config: ParallelConfig, workload: Workload) -> Counter[str]:
    """Name -> FLOPs of the matrix products of all layers of one microbatch, on one rank."""
    found = Counter[str]()
    for number, one in workload.of_layers(0, workload.model.layers, True).alike(workload.model.layers):
        for kernel in rank_kernels(one, config):
            if isinstance(kernel, Gemm):
                found[kernel.name] += number * round(kernel.flops)
    return found


def has_window(model: Model) -> str:
    """Python text that is true for a layer `at` with a window."""
    found = [f"at % {model.sliding_window_every} == 0"] if model.sliding_window_every > 1 else []
    found += [f"(at + 1) % {model.full_attention_every} != 0"] if model.full_attention_every else []
    return " and ".join(found) or "True"


def dense_layers(model: Model, first: int, package: str) -> str:
    """Statements that give a dense MLP to the first layers, and to those between `moe_layer_step`; empty for none."""
    found = [f"at < {first}"] if first else []
    found += [f"(at + 1) % {model.moe_layer_step} != 0"] if model.moe_layer_step > 1 else []
    if not found:
        return ""
    return (
        f"\n    for at, layer in enumerate(shape.layers):\n        if {' or '.join(found)}:\n"
        f"            layer.moe = None\n            layer.feed_forward = {_mlp(model.dense_ffn_hidden, package)}"
    )


def shared_experts(width: int, package: str) -> str:
    """Statements that give shared experts of a total width, or none, to all layers with experts."""
    mlp = _mlp(width, package) if width else "None"
    return f"\n    for layer in shape.layers:\n        if layer.moe is not None:\n            layer.moe.shared_experts = {mlp}"


def _mlp(width: int, package: str) -> str:
    init = f"{package}._LINEAR_INIT"
    return f"{package}.make_ffn_config(dim=dim, hidden_dim={width}, w1_param_init={init}, w2w3_param_init={init})"
