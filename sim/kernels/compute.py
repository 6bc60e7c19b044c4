"""Seconds of compute of one rank: a transformer layer, the input embedding, the head and the optimizer, measured or by formula.

A layer is the sum of its kernels (`sim.kernels.formulas`), unless the device's profile has measured it. The backward also adds
each gradient to the accumulated one: it is read once as it is computed, and read and written once in the accumulation buffer
(the hook on a parameter in Megatron-LM, megatron/core/distributed). Recomputation runs the forward again: all of it ("full";
without the last product if the software stops early) or that of some modules ("selective", `sim.kernels.recomputation`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from sim.hardware.device_spec import DeviceSpec
from sim.hardware.measured import MeasuredRow, lookup
from sim.kernels.formulas import (
    attention_seconds,
    backward_seconds,
    forward_seconds,
    input_gradient_seconds,
    pass_seconds,
    weight_gradient_seconds,
)
from sim.kernels.frozen_weights import trained_layer_parameters
from sim.kernels.key_gathers import with_gathers
from sim.kernels.launches import launch_seconds, launched
from sim.kernels.recomputation import repeated, stops_early
from sim.kernels.ring_copies import streams, with_ring
from sim.kernels.sequence_copies import with_copies
from sim.plan.context_parallelism import ring_ranks
from sim.plan.expert_parallelism import DEDUPLICATED
from sim.plan.parallel_config import GRADIENT_BYTES, ParallelConfig
from sim.units import Bytes, Seconds
from sim.workload.adapter_kernels import frozen
from sim.workload.end_kernels import embedding_kernels, head_kernels
from sim.workload.kernels import Attention, Gemm, Kernel, LayerSharding
from sim.workload.model import NARROW
from sim.workload.optimizers import OPTIMIZERS
from sim.workload.workload import Workload


def _parts(
    kernels: tuple[Kernel, ...], parameters: float, device: DeviceSpec, workload: Workload, config: ParallelConfig
) -> tuple[Seconds, Seconds, Seconds]:
    """Seconds of forward, input gradients (B) and weight gradients (W) of kernels that hold `parameters` on this rank.

    The backward is split as in arXiv 2401.10241, table 1: of a product's two backward products one belongs to B and one to W,
    every other kernel's backward to B, the accumulation of gradients to W: a pass of its own, or in the product's result
    (Megatron-LM's gradient_accumulation_fusion).
    """
    precision, nbytes = workload.precision, workload.bytes_per_value
    forward = sum(forward_seconds(k, device, precision, nbytes, config.attention) for k in kernels)
    inputs = sum(input_gradient_seconds(k, device, precision, nbytes, config.attention) for k in kernels)
    fused = device.fuses_accumulation(precision)
    added = accumulated(device, workload, config) if fused else 0.0
    weights = sum(weight_gradient_seconds(k, device, precision, nbytes, added) for k in kernels)
    if not fused:
        weights += pass_seconds(accumulated(device, workload, config) * parameters, device)
    return forward, inputs, weights


def accumulated(device: DeviceSpec, workload: Workload, config: ParallelConfig) -> Bytes:
    """Bytes moved for each parameter to add its gradient to the accumulated one, beside those of the gradient's product.

    The accumulated gradient is read and written; the new one is read, or if accumulation is fused, not written."""
    own = -workload.bytes_per_value if device.fuses_accumulation(workload.precision) else workload.bytes_per_value
    return own + 2.0 * GRADIENT_BYTES[config.gradient_precision]


def layer_seconds(device: DeviceSpec, workload: Workload, config: ParallelConfig) -> tuple[Seconds, Seconds]:
    """(forward, backward) seconds of one layer and one microbatch on one rank, without communication."""
    forward, inputs, weights = layer_parts(device, workload, config)
    return forward, inputs + weights


def measured(device: DeviceSpec, workload: Workload, config: ParallelConfig) -> MeasuredRow | None:
    """The row of the device's profile for this workload; None where formulas apply: no profile or row, cp or ep > 1, etp, or
    adapters."""
    if device.profile is None or config.cp > 1 or config.splits_experts or workload.adapter is not None:
        return None
    return lookup(device.profile, workload, device.runs(workload.precision), config.tp, config.microbatch_size)[0]


def includes_collectives(device: DeviceSpec, workload: Workload, config: ParallelConfig) -> bool:
    """Whether the seconds of a layer contain its tensor-parallel collectives."""
    row = measured(device, workload, config)
    return row is not None and row.collectives


def rests_on(device: DeviceSpec, workload: Workload, config: ParallelConfig) -> str:
    """The source of the seconds of compute, in words: measured, interpolated, or formula and why."""
    if device.profile is None:
        return "formula: the device is not profiled"
    if config.cp > 1 or config.splits_experts:
        return "formula: profiles do not tell of cp, ep and etp"
    if workload.adapter is not None:
        return "formula: profiles do not tell of adapters"
    row = measured(device, workload, config)
    words = lookup(device.profile, workload, device.runs(workload.precision), config.tp, config.microbatch_size)[1]
    return words + (", head by formula" if row and not row.head else "")


def rank_kernels(workload: Workload, config: ParallelConfig) -> tuple[Kernel, ...]:
    """Forward kernels of one layer and one microbatch on one rank."""
    sharding = LayerSharding(
        config.tp, config.sequence_parallel, config.cp, config.ep, config.expert_tp, config.load, config.sent,
        config.dispatcher in DEDUPLICATED, ring_ranks(config), streams(config),
        config.whole_latents,
    )  # fmt: skip
    kernels = with_ring(workload.kernels(config.microbatch_size, sharding), workload.bytes_per_value, config)
    return with_copies(with_gathers(kernels, workload.bytes_per_value, config), workload, config)


def first_kernels(workload: Workload, config: ParallelConfig) -> tuple[Kernel, ...]:
    """Forward kernels of the input embedding for one microbatch on one rank."""
    return embedding_kernels(workload.model, config.microbatch_size, workload.seq_len // config.cp, workload.bytes_per_value)


def last_kernels(workload: Workload, config: ParallelConfig) -> tuple[Kernel, ...]:
    """Forward kernels of final norm, logits and loss for one microbatch on one rank."""
    size, tokens = config.microbatch_size, workload.seq_len // config.cp
    kernels = head_kernels(workload.model, size, tokens, config.tp, workload.bytes_per_value)
    return kernels if workload.adapter is None else frozen(kernels)


def head_parameters(workload: Workload, config: ParallelConfig) -> float:
    """Parameters of final norm and logits on one rank that have gradients: none beside adapters."""
    return workload.model.head_parameters / config.tp if workload.adapter is None else 0.0


@functools.lru_cache(maxsize=4096)
def ring_seconds(device: DeviceSpec, workload: Workload, config: ParallelConfig, backward: bool) -> Seconds:
    """Seconds of one layer's attention core that can hide the exchange of keys and values among cp ranks.

    A rank computes on its own part while the next one travels, in as many equal steps as the ring has ranks; nothing travels
    during the last step (Transformer Engine, pytorch context_parallel.py, AttnFuncWithCPAndKVP2P; `cp_comm_type` p2p of
    Megatron-Core). Where keys are gathered at once, a forward waits for them behind its first step; in a backward gradients
    travel beside the others.
    """
    cores = [kernel for kernel in rank_kernels(workload, config) if isinstance(kernel, Attention)]
    precision, nbytes = workload.precision, workload.bytes_per_value
    seconds = sum(attention_seconds(core, device, precision, nbytes, config.attention, backward) for core in cores)
    ranks = ring_ranks(config)
    beside = 1 if config.gathered_keys and not backward else ranks - 1
    return seconds * beside / ranks


@functools.lru_cache(maxsize=4096)
def layer_parts(device: DeviceSpec, workload: Workload, config: ParallelConfig) -> tuple[Seconds, Seconds, Seconds]:
    """(forward, input gradients and recomputation, weight gradients) of one layer: `layer_seconds` with a split backward.

    A measured backward is split in the proportion that the formulas give.
    """
    kernels, row = rank_kernels(workload, config), measured(device, workload, config)
    forward, inputs, weights = _parts(kernels, trained_layer_parameters(workload, config), device, workload, config)
    launches = launch_seconds(device, workload, config, kernels)
    forward, backward = row.layer if row else launched(device, launches, forward, inputs + weights)
    weights *= backward / (inputs + weights)
    inputs = backward - weights
    if config.recompute == "full":
        inputs += forward * _repeated_share(kernels, device, workload, config)
    for kernel in repeated(kernels, config):
        inputs += forward_seconds(kernel, device, workload.precision, workload.bytes_per_value, config.attention)
    return forward, inputs, weights


@functools.lru_cache(maxsize=4096)
def launch_gaps(device: DeviceSpec, workload: Workload, config: ParallelConfig) -> tuple[Seconds, Seconds]:
    """(forward, backward) seconds of one layer in which its kernels wait for launches, so that an exchange of tokens beside it
    takes no time of its own; none where launches block.

    Where a schedule splits off weight gradients, an exchange is taken to find the gaps of those, too, of another microbatch, so
    that no schedule costs less than those (`planner.space.shape.split_backward`)."""
    kernels, parameters = rank_kernels(workload, config), trained_layer_parameters(workload, config)
    forward, inputs, weights = _parts(kernels, parameters, device, workload, config)
    ahead, back = launch_seconds(device, workload, config, kernels)
    if device.blocking:
        return 0.0, 0.0
    return max(ahead - forward, 0.0), max(back - inputs - weights, 0.0)


def _repeated_share(kernels: tuple[Kernel, ...], device: DeviceSpec, workload: Workload, config: ParallelConfig) -> float:
    """Share of a layer's forward that full recomputation runs again: all of it, or what is before the last product."""
    if not stops_early(workload, config):
        return 1.0
    precision, nbytes = workload.precision, workload.bytes_per_value
    seconds = [forward_seconds(kernel, device, precision, nbytes, config.attention) for kernel in kernels]
    last = max(index for index, kernel in enumerate(kernels) if isinstance(kernel, Gemm))
    return sum(seconds[:last]) / sum(seconds)


@functools.lru_cache(maxsize=4096)
def embedding_seconds(device: DeviceSpec, workload: Workload, config: ParallelConfig) -> tuple[Seconds, Seconds]:
    """(forward, backward) seconds of the input embedding for one microbatch."""
    if row := measured(device, workload, config):
        return row.embedding
    forward, inputs, weights = _parts(first_kernels(workload, config), 0.0, device, workload, config)
    return forward, inputs + weights if workload.adapter is None else 0.0  # a frozen embedding needs no gradient


def of_head(device: DeviceSpec, workload: Workload) -> tuple[DeviceSpec, Workload]:
    """The device and workload by which the head is priced.

    Under fp8 and less, which are for the products of layers only, logits are bf16 (Transformer Engine; Megatron-LM keeps the
    output layer in bf16, unless `DeviceSpec.fp8_head`), at the clock that the products of layers leave, and software that has
    these has the newest libraries (`GemmCurve`; docs/model.md)."""
    if workload.precision not in NARROW or device.fp8_head:
        return device, workload
    clock = device.curve_of(workload.precision).sustained
    return replace(device, gemm=replace(device.gemm, sustained=clock, older=1.0)), replace(workload, precision="bf16")


def head_seconds(device: DeviceSpec, workload: Workload, config: ParallelConfig) -> tuple[Seconds, Seconds]:
    """(forward, backward) seconds of final norm, logits and loss for one microbatch."""
    forward, inputs, weights = head_parts(device, workload, config)
    return forward, inputs + weights


@functools.lru_cache(maxsize=4096)
def head_parts(device: DeviceSpec, workload: Workload, config: ParallelConfig) -> tuple[Seconds, Seconds, Seconds]:
    """(forward, input gradients, weight gradients) of final norm, logits and loss: `head_seconds` with a split backward."""
    row = measured(device, workload, config)
    kernels, parameters = last_kernels(workload, config), head_parameters(workload, config)
    forward, inputs, weights = _parts(kernels, parameters, *of_head(device, workload), config)
    if row and row.head:
        forward, backward = row.head
        weights *= backward / (inputs + weights)
        inputs = backward - weights
    return forward, inputs, weights


def optimizer_seconds(device: DeviceSpec, owned: float, held: float, optimizer: str = "adam") -> Seconds:
    """Seconds of the optimizer's step over the `owned` parameters whose state this rank has, with the time of the host once.

    `held` parameters have their gradient on this rank; software may move `DeviceSpec.update_bytes` for each."""
    kind = OPTIMIZERS[optimizer]
    moved = kind.unfused_bytes if device.unfused_optimizer else kind.moved_bytes
    return pass_seconds(moved * owned + device.update_bytes * held, device) + device.step


@dataclass(frozen=True, slots=True)
class KernelTime:
    """Seconds of the kernels of one name in one layer and microbatch; a limit is "compute", "memory" or "launch"."""

    name: str
    forward: Seconds
    forward_limit: str
    backward: Seconds
    backward_limit: str


def kernel_times(device: DeviceSpec, workload: Workload, config: ParallelConfig) -> tuple[KernelTime, ...]:
    """The kernels that `layer_seconds` adds up (by formula, without recomputation), one for each name, in order."""
    precision, nbytes, kernels = workload.precision, workload.bytes_per_value, rank_kernels(workload, config)
    added = accumulated(device, workload, config) if device.fuses_accumulation(precision) else 0.0
    gradients = functools.partial(backward_seconds, added=added)
    times = []
    for name in dict.fromkeys(kernel.name for kernel in kernels):
        same = tuple(kernel for kernel in kernels if kernel.name == name)

        def seconds(run: Callable[..., Seconds], on: DeviceSpec, same: tuple[Kernel, ...] = same) -> Seconds:
            return sum(run(kernel, on, precision, nbytes, config.attention) for kernel in same)

        forward, backward = functools.partial(seconds, forward_seconds), functools.partial(seconds, gradients)
        times.append(KernelTime(name, forward(device), _limit(forward, device), backward(device), _limit(backward, device)))
    *_, accumulation = _parts((), trained_layer_parameters(workload, config), device, workload, config)
    return (*times, KernelTime("gradients", 0.0, "", accumulation, "memory"))


def _limit(seconds: Callable[[DeviceSpec], Seconds], device: DeviceSpec) -> str:
    """What limits a kernel: "launch" if that is half of its time or more, else the slower of "compute" and "memory" alone."""
    peak = tuple((precision, math.inf) for precision, _ in device.peak)
    computing, moving = replace(device, memory_bandwidth=math.inf), replace(device, peak=peak)
    if seconds(device) < 2 * seconds(replace(computing, peak=peak)):
        return "launch"
    return "compute" if seconds(computing) >= seconds(moving) else "memory"
