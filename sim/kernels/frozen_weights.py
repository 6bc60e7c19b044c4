"""Base weights that adapters leave frozen (`sim.workload.adapter`): they have neither gradients nor optimizer state.

ZeRO 3 shards them like trained weights, and gathers them as they are stored (FSDP with QLoRA gathers 4 bits: answer.ai, "You
can now train a 70b language model at home", 2024); ZeRO 1 and 2 never move them."""

from __future__ import annotations

from sim.plan.parallel_config import ParallelConfig
from sim.units import Bytes
from sim.workload.model import Model
from sim.workload.workload import Workload


def trained_layer_parameters(workload: Workload, config: ParallelConfig) -> float:
    """Parameters of one layer on one rank that have gradients: those of its adapters, or all."""
    if workload.adapter is None:
        return workload.model.layer_parameters_on(config.tp, config.ep, config.expert_tp)
    return workload.adapter.layer_parameters(workload.model, config.tp)


def layer_bytes(workload: Workload, config: ParallelConfig) -> Bytes:
    """Bytes of the frozen weights of one layer on one rank, not sharded; 0 where all weights are trained."""
    if workload.adapter is None:
        return 0.0
    linear, width = workload.model.linear_parameters, workload.bytes_per_value
    rest = workload.model.layer_parameters - linear
    return (linear * workload.adapter.base_bytes(width) + rest * width) / config.tp


def stage_bytes(workload: Workload, config: ParallelConfig, layers: int, ends: float) -> Bytes:
    """Bytes of the frozen weights of a stage on one rank, not sharded: its layers, and `ends` parameters of embedding and head.

    `workload`: that of the stage (`Workload.of_stage`)."""
    if workload.adapter is None:
        return 0.0
    inner = sum(number * layer_bytes(one, config) for number, one in workload.alike(layers))
    return inner + ends * workload.bytes_per_value / config.tp


def written_out_bytes(workload: Workload, config: ParallelConfig) -> Bytes:
    """Bytes of the largest matrix of a layer at full width, where base weights are stored in fewer bits: one at a time."""
    if workload.adapter is None or not workload.adapter.base_precision:
        return 0.0
    return max(_matrices(kind.model) for _, kind in workload.alike(1)) / config.tp * workload.bytes_per_value


def _matrices(model: Model) -> int:
    """Values of the largest matrix of a layer; queries, keys, values, gate and up projection are matrices by themselves."""
    return model.hidden * max(model.query_size, model.value_size, model.ffn_hidden)
