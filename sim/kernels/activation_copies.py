"""Activations that layers keep in host memory between forward and backward: bytes on the device, and the seconds of passes.

With `offload: activations` everything that a layer keeps of a microbatch (`sim.kernels.memory.layer_activation_bytes`; under
full recomputation its input) is copied to the host while the next layer computes, and back while the layer after it computes
its backward. Transformer Engine does so with whole layers (get_cpu_offload_context, which Megatron-LM's
--cpu-offloading-num-layers enters; NVIDIA/Megatron-LM d98e8a64, megatron/core/transformer/transformer_block.py), Megatron-LM's
fine_grained_activation_offload.py with the inputs of chosen modules; torch's saved_tensors_hooks are the mechanism of all of
them. Copies to the host and back have a stream of their own each, so that both directions of the link are used at once.

`sim.plan.offloading.LAYERS_ON_DEVICE` layers are on the device. A pass therefore advances by the longer of compute and copy of
each layer: a layer has no buffer before the copy of an earlier one has ended. The first copy back of a backward is prefetched
during the pass before it, and the last copy of a forward ends during the pass after it."""

from __future__ import annotations

from sim.hardware.device_spec import DeviceSpec
from sim.kernels.memory import layer_activation_bytes
from sim.kernels.offload import copy_rate
from sim.plan.parallel_config import ParallelConfig
from sim.units import Seconds
from sim.workload.workload import Workload


def copied(
    device: DeviceSpec, workload: Workload, config: ParallelConfig, computed: tuple[Seconds, Seconds]
) -> tuple[Seconds, Seconds]:
    """(forward, backward) seconds of a layer for one microbatch whose compute takes `computed` seconds.

    Where the schedule splits off weight gradients (W), copies travel beside them, too: B and W together take as long as the
    backward of other schedules, so that no schedule has less costs than a split one, as the planner's bounds take for granted
    (`planner.space.shape.split_backward`)."""
    copy = layer_activation_bytes(workload, config)[0] / copy_rate(device)
    forward, backward = computed
    return max(forward, copy), max(backward, copy)
