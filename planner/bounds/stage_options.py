"""The stages that devices of a fleet may hold in unlike pipelines: least seconds of a microbatch by number of layers.

A stage of k layers that keeps the activations of all of them takes k times a layer. Where memory has no room for that, it
recomputes the fewest layers with which one microbatch fits, beside the weights, the gradients and the optimizer's state of its
layers, which all devices may share; each of these layers takes its forward once more (`recomputed`), compute alone. The memory
of models with experts, which ranks may divide, is left out."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from planner.bounds.pipeline_modes import Mode, Modes, configuration
from planner.request import Request
from sim.hardware.cluster import Cluster
from sim.kernels import communicators, compute, memory
from sim.plan.parallel_config import ParallelConfig
from sim.units import Bytes, Seconds

ROUNDING = 1e-9
"""Fraction by which the bytes of a stage may exceed its memory."""


@dataclass(frozen=True, slots=True)
class StageOption:
    """Stages on a slot of `devices` devices of a kind (`kind`: its index), for one microbatch.

    forward, inputs and both: seconds of a layer's forward, of the gradients of its inputs, and of forward and backward; head:
    of the head; again: of what stages of 0, 1, 2 ... layers recompute, up to the most layers that fit."""

    kind: int
    devices: int
    forward: Seconds
    inputs: Seconds
    both: Seconds
    head: Seconds
    again: tuple[Seconds, ...]


@dataclass(frozen=True, slots=True)
class DeviceKind:
    """Devices that are alike, of one cluster or several: how many, and their stages by samples of a microbatch."""

    devices: int
    options: dict[int, tuple[StageOption, ...]]


def device_kinds(request: Request, every: Modes) -> list[DeviceKind]:
    """The kinds of devices of a request that hold stages: clusters whose devices have equal modes and memory are one."""
    alike = dict[tuple[tuple[Mode, ...], Bytes], list[Cluster]]()
    for cluster in request.clusters():
        alike.setdefault((every[cluster.name], request.topology.room(cluster.node.device)), []).append(cluster)
    kinds = list[DeviceKind]()
    for clusters in alike.values():
        options = dict[int, list[StageOption]]()
        for mode in every[clusters[0].name]:
            again = recomputed(request, clusters[0], mode)
            if len(again) > 1:
                both, _, head = mode.seconds
                option = StageOption(len(kinds), mode.devices, mode.forward, mode.inputs, both, head, again)
                options.setdefault(mode.size, []).append(option)
        devices = sum(cluster.devices for cluster in clusters)
        kinds.append(DeviceKind(devices, {size: tuple(_least(own)) for size, own in options.items()}))
    return kinds


def _least(options: Iterable[StageOption]) -> Iterable[StageOption]:
    """One option for all slots of equally many devices, whatever their tp and cp, which is never slower than any of them."""
    alike = dict[int, list[StageOption]]()
    for one in options:
        alike.setdefault(one.devices, []).append(one)
    for devices, own in alike.items():
        forward, inputs, both, head = map(min, zip(*map(_times, own), strict=True))
        most = max(len(one.again) for one in own)
        again = (min(one.again[number] for one in own if number < len(one.again)) for number in range(most))
        yield StageOption(own[0].kind, devices, forward, inputs, both, head, tuple(again))


def _times(one: StageOption) -> tuple[Seconds, Seconds, Seconds, Seconds]:
    return one.forward, one.inputs, one.both, one.head


def recomputed(request: Request, cluster: Cluster, mode: Mode) -> tuple[Seconds, ...]:
    """Least seconds of recomputation of a stage of 0, 1, 2 ... layers for one microbatch, up to the most layers that fit."""
    most = most_layers(request, cluster, mode)
    if request.workload.model.experts or not most:
        return (0.0,) * (most + 1)
    config, full = _configurations(request, mode)
    # bytes are linear in the layers, from one layer on
    (kept, next_kept), (again, next_again) = ([_bytes(request, own, number) for number in (1, 2)] for own in (config, full))
    each = next_kept - kept
    saved = each - (next_again - again)
    room = _room(request, cluster, config) * (1 + ROUNDING)
    seconds = max(_backward(request, cluster, full) - _backward(request, cluster, config), 0.0)
    found = [0.0]
    for number in range(1, most + 1):
        fewest = 0
        if saved > 0 and kept + (number - 1) * each > room:
            over = again + (number - 1) * each + saved - _inputs(request, full) - room
            fewest = max(math.ceil(over / saved * (1 - ROUNDING)), 1)
        found.append(seconds * min(fewest, number))
    return tuple(found)


def most_layers(request: Request, cluster: Cluster, mode: Mode) -> int:
    """Most layers of a stage that fit the memory of a device, beside one microbatch in flight."""
    layers = request.workload.model.layers
    if request.workload.model.experts:
        return layers
    config, full = _configurations(request, mode)
    inputs, room = _inputs(request, full), _room(request, cluster, config)

    def fits(number: int) -> bool:
        kept, again = (_bytes(request, one, number) for one in (config, full))
        return min(kept, again - inputs) <= room * (1 + ROUNDING)

    low, high = 0, layers + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _configurations(request: Request, mode: Mode) -> tuple[ParallelConfig, ParallelConfig]:
    """Those of a stage that recomputes no layer, and all; all devices share the state of the optimizer at most."""
    own = configuration(request, mode.tp, mode.cp, mode.size)
    config = replace(own, zero_stage=1, other_dp_cp=request.topology.fleet.devices)
    return config, replace(config, recompute="full")


def _room(request: Request, cluster: Cluster, config: ParallelConfig) -> Bytes:
    alone = replace(config, other_dp_cp=0)  # no communicator is counted that some plan has not
    return request.topology.room(cluster.node.device) - communicators.outside_torch(alone)


def _inputs(request: Request, full: ParallelConfig) -> Bytes:
    """Bytes of the inputs of a recomputed layer."""
    return memory.layer_activation_bytes(request.workload, full)[0]


def _bytes(request: Request, config: ParallelConfig, layers: int) -> Bytes:
    return memory.rank_bytes(request.workload, config, layers, 1, False, False)


def _backward(request: Request, cluster: Cluster, config: ParallelConfig) -> Seconds:
    """Seconds of a layer's backward, compute alone, with what it recomputes."""
    return compute.layer_seconds(cluster.node.device, request.workload, config)[1]
