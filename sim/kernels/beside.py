"""Exchanges that run beside compute of the same microbatch: what travels, and the seconds of compute that can hide it.

cp ring     keys and values, beside the attention of a layer (`sim.kernels.payloads.ring_exchanges`)
dispatch    tokens to their experts, beside the first product and the activation of the shared experts
combine     their results, beside the second product of the shared experts
tokens      both: what another microbatch does not hide of them, beside the wait of a layer's kernels for their launches
gather, scatter   what tensor-parallel ranks exchange, beside products (`sim.kernels.tensor_overlap`)

Dispatch and combine are Megatron-Core's --moe-shared-expert-overlap (NVIDIA/Megatron-LM d98e8a64, transformer/moe of
megatron/core): its dispatcher starts the all_to_all, then linear_fc1_forward_and_act of shared_experts.py on a stream of its
own, and linear_fc2_forward after it has started the all_to_all back. In a backward each runs beside the gradients of the same
products.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from sim.hardware.device_spec import DeviceSpec
from sim.kernels import compute, payloads, tensor_overlap
from sim.kernels.formulas import kernel_seconds
from sim.kernels.launches import overlaps_from_host
from sim.plan.expert_parallelism import EXPOSED
from sim.plan.parallel_config import ParallelConfig
from sim.units import Bytes, Seconds
from sim.workload.kernels import Kernel
from sim.workload.workload import Workload

SHARED = ("dispatch", "combine")
"""Exchanges of tokens that shared experts can hide."""


class Exchange(NamedTuple):
    """An exchange of all layers of a stage: kind of action, kind of group, operation with its direction (F, B, or R for a
    recomputed forward), bytes of one, and their number."""

    kind: str
    group: str
    operation: str
    nbytes: Bytes
    times: float


def exchanges(workload: Workload, config: ParallelConfig, layers: int, backward: bool) -> tuple[Exchange, ...]:
    """The exchanges of one microbatch on one stage that run beside compute."""
    overlaps = tensor_overlap.applies(config)
    if config.cp == config.ep == 1 and not (overlaps or config.overlap_shared_experts):
        return ()
    tensors = tensor_overlap.exchanges(workload, config, layers, backward) if overlaps else ()
    found = tuple(Exchange(*one) for one in tensors)
    found = (*beside_launches(workload, config, layers, backward), *found)
    if config.cp == 1 and not config.overlap_shared_experts:
        return found
    rings = payloads.ring_exchanges(workload, config, layers, backward)
    return (*(Exchange("ring", "cp", *one) for one in rings), *_of_tokens(workload, config, layers, backward), *found)


def beside_launches(workload: Workload, config: ParallelConfig, layers: int, backward: bool) -> Iterator[Exchange]:
    """The part of the exchanges of tokens that another microbatch does not hide, where the host launches overlapped layers
    (`sim.kernels.launches`); those of all layers are of one size."""
    if not config.overlaps_from_host:
        return
    hiding = [(number, one) for number, one in workload.alike(layers) if overlaps_from_host(one, config)]
    count = sum(number + payloads.repeated(one, config, number, backward)[1] for number, one in hiding)
    if count:
        nbytes = payloads.routed_bytes(hiding[0][1], config) * config.exchange_factor
        yield Exchange("beside", "ep", f"tokens {'B' if backward else 'F'}", nbytes, 2.0 * EXPOSED * count)


def _of_tokens(workload: Workload, config: ParallelConfig, layers: int, backward: bool) -> Iterator[Exchange]:
    """Exchanges beside shared experts; those of all layers are of one size."""
    hiding = [(number, one) for number, one in workload.alike(layers) if payloads.hides_exchange(one, config)]
    for direction in ("R", "B") if backward else ("F",):
        again = [payloads.repeated(one, config, number, backward)[1] for number, one in hiding]
        count = sum(again) if direction == "R" else sum(number for number, _ in hiding)
        if count:
            nbytes = payloads.routed_bytes(hiding[0][1], config) * config.exchange_factor
            names = SHARED[::-1] if direction == "B" else SHARED
            yield from (Exchange("beside", "ep", f"{name} {direction}", nbytes, float(count)) for name in names)


def windows(device: DeviceSpec, workload: Workload, config: ParallelConfig, layers: int) -> dict[str, Seconds]:
    """Operation of an exchange -> seconds of compute of a stage that can hide all exchanges of that operation."""
    found = dict.fromkeys(("F", "B", "R"), 0.0)
    if tensor_overlap.applies(config):
        found |= tensor_overlap.windows(device, workload, config, layers)
    for number, alike in workload.alike(layers):
        again = config.recomputed(number)
        forward, backward = (compute.ring_seconds(device, alike, config, way) for way in (False, True))
        for direction, seconds in (("F", number * forward), ("B", number * backward), ("R", again * forward)):
            found[direction] += seconds
        if overlaps_from_host(alike, config):
            for direction, seconds in zip("FB", compute.launch_gaps(device, alike, config), strict=True):
                key = f"tokens {direction}"
                found[key] = found.get(key, 0.0) + number * seconds
        if payloads.hides_exchange(alike, config):
            again = payloads.repeated(alike, config, number, True)[1]
            for name, (ahead, back) in zip(SHARED, shared_seconds(device, alike, config), strict=True):
                for direction, seconds in (("F", number * ahead), ("B", number * back), ("R", again * ahead)):
                    key = f"{name} {direction}"
                    found[key] = found.get(key, 0.0) + seconds
    return found


@functools.lru_cache(maxsize=4096)
def shared_seconds(
    device: DeviceSpec, workload: Workload, config: ParallelConfig
) -> tuple[tuple[Seconds, Seconds], tuple[Seconds, Seconds]]:
    """(forward, backward) seconds of the shared experts of one layer that can hide a dispatch, and a combine.

    Where the backward is split, weight gradients of another microbatch are taken to be beside them, so that no schedule costs
    less than those that split it (`planner.space.shape.split_backward`)."""
    kernels = iter(compute.rank_kernels(workload, config))
    next(kernel for kernel in kernels if kernel.name == "dispatch")
    up, activation, down = islice(kernels, 3)  # those of shared experts come first

    def seconds(*beside: Kernel) -> tuple[Seconds, Seconds]:
        pairs = [kernel_seconds(one, device, workload, config) for one in beside]
        return sum(ahead for ahead, _ in pairs), sum(back for _, back in pairs)

    return seconds(up, activation), seconds(down)
