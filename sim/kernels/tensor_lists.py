"""Seconds that a layer under ZeRO 3 waits for lists of tensors, one for each rank, that collectives take.

DeepSpeed until 2021 (deepspeedai/DeepSpeed b3870363e) gathers and reduces each weight by itself: Python cuts a buffer into a
slice for each rank, and torch copies each slice into or out of a buffer of its own with a kernel of its own. Before a gather
the whole device waits (torch.cuda.synchronize in `_allgather_param` of deepspeed/runtime/zero/partition_parameters.py), and
after it the layer does, so that nothing hides this. Later versions gather into one tensor (4912e0ad7).
"""

from __future__ import annotations

from sim.hardware.device_spec import DeviceSpec
from sim.plan.parallel_config import ParallelConfig
from sim.units import Bytes, Seconds
from sim.workload.kernels import Gemm, Kernel

SLICE = 13.5e-6
"""Host seconds for a rank's slice of a weight and its copy. Measured for one call of torch from Python that launches a kernel
(torch's Linear on a Xeon 8480C: 13.48 us, NVIDIA/TransformerEngine#2053); that a slice and a copy take as long is a guess.
Larger: ZeRO 3 on many devices takes longer."""
NORM_TENSORS = 4
"""Weights and biases of the two norms of a layer of GPT. Its products have a weight and a bias each."""
GATHER_PASSES, REDUCE_PASSES = 3, 2
"""Bytes moved through memory for each byte of a list: a gather zeroes its buffer (torch.zeros) and copies all slices into it, a
reduction copies all slices out of the gradient (ProcessGroupNCCL of torch, whose collectives work on flat buffers)."""


def list_seconds(
    device: DeviceSpec, config: ParallelConfig, kernels: tuple[Kernel, ...], moved: tuple[Bytes, Bytes], gathers: int
) -> tuple[Seconds, Seconds]:
    """(forward, backward) seconds of the lists of a layer: none without `DeviceSpec.tensor_lists` and ZeRO 3.

    `moved` is the bytes of its weights and of its gradients. A forward gathers the weight of each product. A backward does so
    `gathers` times (`sim.kernels.recomputation.backward_gathers`), and reduces the gradient of each tensor. Biases and norms
    are below the size that is shared (stage3_param_persistence_threshold), but their gradients are reduced, too
    (`reduce_gradients_at_owner`)."""
    if not (device.tensor_lists and config.shards_parameters):
        return 0.0, 0.0
    matrices = sum(isinstance(kernel, Gemm) for kernel in kernels)
    rate = device.memory_bandwidth * device.elementwise_efficiency
    forward = config.shards * matrices * SLICE + GATHER_PASSES * moved[0] / rate
    reduction = config.shards * (2 * matrices + NORM_TENSORS) * SLICE + REDUCE_PASSES * moved[1] / rate
    return forward, gathers * forward + reduction
