"""Seconds of passes whose parameters are streamed from the host (`sim.kernels.layer_groups`)."""

from __future__ import annotations

from sim.hardware.device_spec import DeviceSpec
from sim.kernels.layer_groups import gradient_bytes
from sim.kernels.offload import copy_rate
from sim.plan.parallel_config import ParallelConfig
from sim.units import Seconds
from sim.workload.workload import Workload


def streamed(
    device: DeviceSpec, workload: Workload, config: ParallelConfig, parameters: float, computed: tuple[Seconds, Seconds]
) -> tuple[Seconds, Seconds]:
    """(forward, backward) seconds of a group for one microbatch: the longer of its compute and its share of the copies.

    A copy is prefetched while the group before computes all microbatches, so that of m microbatches each waits for 1 / m of it.
    Forwards wait for the weights; backwards for the weights or, in the other direction of the link, the gradients, whichever
    takes longer. The first copy of a step is hidden by the optimizer's work on other groups, and the last one is neglected."""
    each = parameters / copy_rate(device) / config.num_microbatches[0]
    forward, backward = computed
    width = workload.bytes_per_value
    return max(forward, width * each), max(backward, max(width, gradient_bytes(workload, config)) * each)
