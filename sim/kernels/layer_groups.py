"""Groups of parameters that travel between host and device while other groups compute: whole-model swapping on single peers.

With `offload: optimizer, parameters` the host keeps the whole model, and the device two buffers of a group, the embedding, a
layer or the head: one computes, the other is filled, or emptied (ATOM, Wu et al., arXiv 2403.10504, of which the abstract and
summaries were at hand, not the text with its measurements). Each group computes all microbatches of the step before the next
one does, so that it travels once for the forwards and once for the backwards, and its gradients travel back once; both
directions of the link are used at once."""

from __future__ import annotations

from sim.errors import NotModelled
from sim.kernels.frozen_weights import trained_layer_parameters
from sim.plan.parallel_config import GRADIENT_BYTES, ParallelConfig
from sim.units import Bytes
from sim.workload.workload import Workload

BUFFERS = 2
"""Groups whose weights and gradients are on the device."""


def layer_parameters(workload: Workload, config: ParallelConfig) -> float:
    """Parameters of a layer. Raises NotModelled for adapters."""
    if workload.adapter is not None:
        raise NotModelled("adapter with offload parameters: frozen weights that travel are not modelled; --offload optimizer")
    return trained_layer_parameters(workload, config)


def gradient_bytes(workload: Workload, config: ParallelConfig) -> Bytes:
    """Bytes of the gradient of a parameter."""
    return max(GRADIENT_BYTES[config.gradient_precision], workload.bytes_per_value)


def on_device_bytes(workload: Workload, config: ParallelConfig, layers: int, first: bool, last: bool) -> Bytes:
    """Bytes of weights and gradients on the device: `BUFFERS` of the largest group."""
    sizes = [layer_parameters(one, config) for _, one in workload.of_stage(layers, first, last).alike(layers)]
    sizes += [workload.model.embedding_parameters] if first else []
    sizes += [workload.model.head_parameters] if last else []
    return BUFFERS * max(sizes, default=0.0) * (workload.bytes_per_value + gradient_bytes(workload, config))


def linear_parameters(workload: Workload, config: ParallelConfig, layers: int) -> dict[str, float]:
    """Kind of gradient group -> parameters on one rank of the matrices of linear layers, of a stage with `layers` layers."""
    alike = workload.alike(layers)
    experts = sum(number * one.model.expert_linear_parameters for number, one in alike)
    dense = (sum(number * one.model.linear_parameters for number, one in alike) - experts) / config.tp
    shared = experts / config.expert_mesh
    return {"dp": dense, "edp": shared} if config.sums_experts_apart else {"dp": dense + shared}
