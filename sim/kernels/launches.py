"""Seconds that the host takes to launch the kernels of a layer, and what of them its kernels leave to an exchange of tokens."""

from __future__ import annotations

from collections.abc import Sequence

from sim.hardware.device_spec import DeviceSpec
from sim.kernels.ring_copies import ring_launches
from sim.plan import schedules
from sim.plan.parallel_config import ParallelConfig
from sim.units import Seconds
from sim.workload.kernels import HEAD_NORM, Kernel
from sim.workload.workload import Workload

LAUNCH_BACKWARD = 1.3
"""Seconds that the host takes to launch a layer's backward for each second of its forward's launches (`DeviceSpec.launch`)."""
EXPERT_LAUNCHES, LAUNCHES_PER_EXPERT = 2.0, 0.1
"""Seconds that the host takes to launch a layer with experts (router, sorting, exchange), and the products of each expert of
the rank, for each second of a dense layer's launches: Transformer Engine launches the products of a rank's experts one after
the other (GroupedLinear). Chosen on a grid over seven runs of Megatron-Core on H100, five of them bound by launches: with 256
sequences Qwen2-57B-A14B on 64 and Mixtral 8x22B-G8T8 on 128, unfolded and folded (arXiv 2504.14960, table 1), and
Qwen3-235B-A22B with tp 4, with pp 32 and with ep 32 (Megatron-MoE-ModelZoo e8650517)."""
LAUNCHES, ADAPTER_LAUNCHES, DEQUANTISE_LAUNCHES = 30, 4, 3
"""Kernels that the host launches for the forward of a dense layer (a guess), for each adapter (two products, scaling, sum), and
to write out 4-bit weights (bitsandbytes: scales, their mean, weights). Larger shares: adapters cost more where launches do."""
OVERLAP_LAUNCHES = 2.0
"""Launches of a layer with experts whose exchange overlaps another microbatch, over those of such a layer without the overlap.
Megatron-Core (d98e8a64, TransformerLayerSchedulePlan of models/common/model_chunk_schedule_plan.py) then runs each layer as
four to six nodes of a forward and as many of a backward, each with streams and events of its own, and calls autograd and the
weight gradients from Python for each, where one call for a microbatch does it else. How much longer that takes is set by one
run: Qwen3-30B-A3B on 16 H100 in fp8 with ep 8 takes 16.7 ms for a layer and microbatch (Megatron-Bridge 26.02)."""


GRAPHED = {"attn": 0.6, "mlp": 0.4}
"""Scope of a CUDA graph -> its share of the launches of a dense layer, which one launch replaces. Counted: 13 of 21 launches
of a forward of Megatron-LM's layer (kernels, an allocation, three for each all_reduce) belong to attention with its norm,
projections and sum. Graphs of parts of layers with experts change nothing (docs/model.md)."""
MODULE_LAUNCHES = 1.73
"""Launches that the host could make while it calls a module of Transformer Engine, beside those of its kernels: on one GH200
its Linear takes 90.5 us of the host where torch's, which is one launch, takes 33.2 (on GB200 99.7 and 37.1, or 1.69;
NVIDIA/TransformerEngine#2053, August 2025). That its attention and norms, and a backward, take as much longer is a guess."""
LAYER_MODULES = 5
"""Modules of Transformer Engine in a dense layer: four products, two of them with their norms, and attention
(NVIDIA/Megatron-LM d98e8a64 megatron/core/models/gpt/gpt_layer_specs.py). Norms of queries and keys come on top."""
UNFUSED_LAUNCHES = 6, 9
"""Launches that Transformer Engine's unfused attention adds to a forward and a backward. Counted (NVIDIA/TransformerEngine
d0067d0d transformer_engine/pytorch/attention/dot_product_attention/backends.py, UnfusedDotProductAttention): keys and values
are repeated for grouped queries, memory for the scores, two products with the softmax between, and a copy of the result, for
one fused kernel; a backward has four products, the sums of both repetitions, the softmax, two scalings and a copy."""
COLLECTIVE_LAUNCHES = 3
"""Launches that the host could make while it starts a collective: of its kernel, of memory for its result, and of the events by
which two streams wait for each other. A guess."""
MORE_COLLECTIVES = 2, 4
"""Collectives in a layer's forward and backward that sequence parallelism adds to the two and two of tensor parallelism: a
gather before and a scatter behind attention and MLP each, and a backward gathers both inputs once more (arXiv 2205.05198)."""


def launch_seconds(
    device: DeviceSpec, workload: Workload, config: ParallelConfig, kernels: tuple[Kernel, ...]
) -> tuple[Seconds, Seconds]:
    """(forward, backward) seconds that the host takes to launch the `kernels` of a layer: none with a CUDA graph of the whole
    iteration, which is launched once."""
    if "full_iteration" in config.cuda_graphs:
        return 0.0, 0.0
    ranks = config.tp if config.tp > 1 and config.pp > 1 else 0
    experts = workload.model.experts / config.ep
    dense = EXPERT_LAUNCHES + LAUNCHES_PER_EXPERT * experts if experts else 1.0
    if workload.adapter is not None:
        names = [kernel.name for kernel in kernels]
        more = ADAPTER_LAUNCHES * names.count("adapter A") + DEQUANTISE_LAUNCHES * names.count("dequantise")
        dense += more / LAUNCHES
    norms = sum(kernel.name == HEAD_NORM for kernel in kernels)
    dense += (ring_launches(kernels) + norms) / LAUNCHES
    launch = device.launch * dense + device.launch_per_rank * ranks
    if experts:
        launch *= OVERLAP_LAUNCHES if config.overlaps_from_host else 1.0
        return launch, LAUNCH_BACKWARD * launch
    ahead, back = _module_launches(config, norms) if device.engine_modules else (0.0, 0.0)
    one = device.launch / LAUNCHES
    left = 1.0 - sum(GRAPHED.get(scope, 0.0) for scope in config.cuda_graphs)
    return left * (launch + one * ahead), left * (LAUNCH_BACKWARD * launch + one * back)


def _module_launches(config: ParallelConfig, norms: int) -> tuple[float, float]:
    """(forward, backward) launches that the host could make while it calls Transformer Engine's modules of a dense layer, with
    `norms` of queries and keys, and starts the collectives that sequence parallelism adds.

    Layers with experts have none: their launches were set by software with these modules (`EXPERT_LAUNCHES`)."""
    modules = MODULE_LAUNCHES * (LAYER_MODULES + norms)
    ahead, back = MORE_COLLECTIVES if config.sequence_parallel and config.tp > 1 else (0, 0)
    forward, backward = UNFUSED_LAUNCHES if config.attention == "unfused" else (0, 0)
    forward, backward = forward + COLLECTIVE_LAUNCHES * ahead, backward + COLLECTIVE_LAUNCHES * back
    return modules + forward, LAUNCH_BACKWARD * modules + backward


def launched(
    device: DeviceSpec, launches: tuple[Seconds, Seconds], forward: Seconds, backward: Seconds
) -> tuple[Seconds, Seconds]:
    """(forward, backward) seconds of a layer, with the launches of its kernels by the host.

    Launches overlap the kernels, so the longer of both counts; where launches block, the two are added."""
    if device.blocking:
        return forward + launches[0], backward + launches[1]
    return max(forward, launches[0]), max(backward, launches[1])


def message_seconds(device: DeviceSpec, operation: str, is_receiver: bool) -> Seconds:
    """Seconds for which a device waits while its host calls what a message needs, of an activation (operation F) or of its
    gradient (B), on the receiver or on the sender."""
    calls = device.message_calls[2 * (operation == "B") + is_receiver]
    return calls * device.launch / LAUNCHES


def stage_message_seconds(
    specs: Sequence[DeviceSpec], config: ParallelConfig, receives: bool, sends: bool
) -> tuple[Seconds, Seconds, Seconds, Seconds]:
    """`message_seconds` of the slowest device type of a stage: before its forward and its backward, and after them.

    receives, sends: the stage has a message from the one before, and to the one after; their gradients go the other way. Where
    messages overlap compute (`schedules.OVERLAPS_SENDS`), so do the calls for them."""
    if schedules.get(config.schedule).OVERLAPS_SENDS or not any(any(spec.message_calls) for spec in specs):
        return 0.0, 0.0, 0.0, 0.0
    ends = ("F", True, receives), ("B", True, sends), ("F", False, sends), ("B", False, receives)
    forward, backward, *after = (
        max(message_seconds(spec, way, is_receiver) for spec in specs) * has_one for way, is_receiver, has_one in ends
    )
    return forward, backward, after[0], after[1]


def overlaps_from_host(workload: Workload, config: ParallelConfig) -> bool:
    """Whether the host launches a layer whose exchange of tokens overlaps another microbatch: one with routed experts."""
    return workload.model.experts > 0 and config.overlaps_from_host
