"""Optimizer state in host memory: its bytes, and the seconds of an optimizer step on the CPUs of the hosts.

The host keeps the fp32 weights, the moments and a copy of the gradients in fp32, and its CPUs run the optimizer; the device
keeps weights and gradients, as with Megatron-LM's --optimizer-cpu-offload (NVIDIA/Megatron-LM d98e8a64,
megatron/core/optimizer/cpu_offloading/hybrid_optimizer.py). ZeRO-Offload (arXiv 2101.06840, section 4) moves gradients as soon
as they are reduced, so that its devices keep fewer of them. A step is, one after the other: gradients to the host, the
optimizer there, weights to the device. Both copies are fp32, as HybridDeviceOptimizer keeps both on the host: torch converts a
copy that does not block on the device (aten/src/ATen/native/cuda/Copy.cu). Megatron-LM's --overlap-cpu-optimizer-d2h-h2d and
the delayed update of ZeRO-Offload overlap these parts with each other or with the next step; neither is modelled.

With `offload: optimizer, parameters` weights and gradients are on the host already (`sim.kernels.layer_groups`), so that the
optimizer copies nothing; it also reads the gradients for their norm, and writes the weights that are copied to the device.

Each device copies over a link to the host of its own, and devices of a host have equal shares of its memory bandwidth and run
their optimizers at the same time.
"""

from __future__ import annotations

import functools

from sim.hardware.cluster import Cluster
from sim.hardware.device_spec import DeviceSpec
from sim.kernels import memory
from sim.kernels.formulas import pass_seconds
from sim.network.paths import PCIE_EFFICIENCY
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from sim.units import Bytes, BytesPerSecond, Seconds
from sim.workload.optimizers import MASTER, OPTIMIZERS
from sim.workload.workload import Workload

COPIED: Bytes = 4.0
"""Bytes of a gradient that goes to the host, and of a weight that comes back: fp32."""
NORM: Bytes = 4.0
"""Bytes of the fp32 gradient that the device reads for its norm, for each parameter."""
CPU_SHARE = 0.43
"""Share of the nominal memory bandwidth of a host that a vectorised Adam on its CPUs reaches: DeepSpeed's CPU-Adam takes 2.57 s
for 10 billion parameters (ZeRO-Offload, arXiv 2101.06840, table 4; 0.36 to 0.50 for 1 to 8 billion), 28 bytes each, on a DGX-2,
whose 12 channels of DDR4-2666 have 256 GB/s. torch's fused AdamW, which Megatron-LM uses, is of the same kind: on one core of a
Xeon it moved 14.6 GB/s where a triad moved 21.0. A larger share makes steps shorter."""
DEVICE_SHARE: BytesPerSecond = 25.6e9
"""Memory bandwidth of the host for one device where the topology gives none: a channel of DDR4-3200 for each. A guess: hosts
with eight devices have 16 to 50 GB/s for each, a desktop with one device has 80."""


def copy_rate(device: DeviceSpec) -> BytesPerSecond:
    """Rate of large copies between a device and its host, in one direction."""
    return device.host_bandwidth * PCIE_EFFICIENCY


def optimizer_seconds(device: DeviceSpec, owned: float, held: float, optimizer: str = "adam") -> Seconds:
    """Seconds of the optimizer's step over the `owned` parameters whose state this rank has on its host.

    `held` parameters have their gradient on this rank; software may move `DeviceSpec.update_bytes` for each."""
    on_device = pass_seconds(NORM * owned + device.update_bytes * held, device) + device.step
    moved = 2 * OPTIMIZERS[optimizer].moments + 2 * MASTER + COPIED
    on_host = moved * owned / (CPU_SHARE * (device.host_memory_bandwidth or DEVICE_SHARE))
    return on_device + 2 * COPIED * owned / copy_rate(device) + on_host


def on_host_seconds(device: DeviceSpec, workload: Workload, owned: float) -> Seconds:
    """Seconds of the optimizer's step over `owned` parameters whose weights and gradients the host keeps, too."""
    moved = 2 * OPTIMIZERS[workload.optimizer].moments + 2 * MASTER + COPIED + NORM + _copied_weight(workload)
    return device.step + moved * owned / (CPU_SHARE * (device.host_memory_bandwidth or DEVICE_SHARE))


def _copied_weight(workload: Workload) -> Bytes:
    """Bytes of the weight that is copied to the device, beside the fp32 one."""
    return float(workload.bytes_per_value) if workload.bytes_per_value < MASTER else 0.0


def rank_bytes(workload: Workload, config: ParallelConfig, layers: int, in_flight: float, first: bool, last: bool) -> Bytes:
    """Bytes of host memory of a rank.

    With optimizer state: moments, fp32 weights and fp32 gradients of the parameters whose state it has, and weights as they are
    copied to the device where that is streamed. With activations: those of `in_flight` microbatches that wait for B, in units
    of one virtual stage as in `sim.kernels.memory.rank_bytes`."""
    away = memory.activation_bytes(workload, config, layers, first, last).away / config.vpp if config.offload else 0.0
    if not config.offloads_optimizer:
        return in_flight * away
    shared = memory.by_sharing(workload.of_stage(layers, first, last), config, layers, first, last)
    owned = sum(parameters / (sharing if config.zero_stage >= 1 else 1) for _, parameters, sharing in shared)
    weight = _copied_weight(workload) if config.offloads_parameters else 0.0
    return owned * (OPTIMIZERS[workload.optimizer].moments + MASTER + COPIED + weight) + in_flight * away


def host_bytes(plan: Plan, beside: Bytes = 0.0) -> dict[tuple[str, int], Bytes]:
    """Bytes on each host, by cluster and number of the host there: what the plan offloads, and `beside` for each rank. Empty
    where hosts keep nothing."""
    found: dict[tuple[str, int], Bytes] = {}
    if not plan.config.offload and not beside:
        return found

    @functools.cache
    def of_stage(pp_rank: int) -> Bytes:
        stages = plan.stages_of(pp_rank)
        layers = sum(plan.stages[stage].layers for stage in stages)
        held = max(held for held, _ in memory.in_flight(plan, pp_rank))
        return rank_bytes(plan.workload_of(stages), plan.config_of(stages), layers, held, *plan.ends(stages))

    for rank, device in enumerate(plan.placement):
        host = device.cluster, plan.fleet.cluster(device.cluster).on_host(device)[0]
        if nbytes := of_stage(plan.config.coordinates(rank)[2]) + beside:
            found[host] = found.get(host, 0.0) + nbytes
    return found


def fullest_hosts(*plans: Plan, beside: Bytes = 0.0) -> dict[str, Bytes]:
    """`host_bytes` of a plan, or of several on the same hosts, of the host with most of them, by cluster; empty where hosts
    keep nothing."""
    of_hosts, most = dict[tuple[str, int], Bytes](), dict[str, Bytes]()
    for host, nbytes in (pair for plan in plans for pair in host_bytes(plan, beside).items()):
        of_hosts[host] = of_hosts.get(host, 0.0) + nbytes
    for (cluster, _), nbytes in of_hosts.items():
        most[cluster] = max(nbytes, most.get(cluster, 0.0))
    return most


def over_host_memory(plan: Plan, beside: Bytes = 0.0) -> tuple[Cluster, Bytes] | None:
    """A cluster whose fullest host needs more memory than it has beside the head-room, with the bytes that it needs; None where
    all fit or their memory is unknown. `beside`: bytes of each rank beside what it offloads."""
    free = 1.0 - plan.topology.memory_headroom
    for name, nbytes in fullest_hosts(plan, beside=beside).items():
        cluster = plan.fleet.cluster(name)
        if cluster.node.host_memory is not None and nbytes > cluster.node.host_memory * free:
            return cluster, nbytes
    return None
