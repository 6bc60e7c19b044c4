"""The work of devices whose stages end in time: a bound on steps of unlike pipelines with few microbatches.

A device of a stage with k of the L layers passes m microbatches of s samples through them, m s k of the samples times layers of
the step, and shares this work with the other devices of its slot. With f, b and i seconds of a layer's forward, backward, and
the part of the backward that gives the gradients of its inputs, for one microbatch on the slot, within T seconds

work      m k (f + b) <= T: each of them takes the slot for its forward and its backward.
latency   (L - k) (f* + i*) + k (f + m i) <= T, where f* + i* are the least of any slot of the fleet for this s. Before the
          first of the m backwards on the stage, that microbatch has passed forward through it and all layers before it, and
          forward and backward through those behind it. All m follow one another, and the last one must pass backward through
          the layers before it.
memory    k layers with the weights and gradients of each, and its part of the optimizer's state if all devices share it, the
          whole activations of one layer and the inputs of the others fit.

The head counts as h layers, where it takes at least h times as long as a layer in all modes: a stage with it has k + h layers
in the first of these. So a device does at most the largest m s k of all whole m and all k, which are whole but for h, and of
all modes, divided by the devices of the slot; all devices together must do L + h times the batch. Large microbatches compute
faster, but take long until they have passed all layers: where there are few samples for each device, either counts. The
embedding, gradients and messages are left out, and so is the memory of a model with experts, which ranks may divide."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from planner.bounds.pipeline_modes import Mode, Modes, configuration
from planner.request import Request
from sim.hardware.cluster import Cluster
from sim.kernels import memory
from sim.plan.parallel_config import ParallelConfig
from sim.units import Bytes, Seconds

Floats = NDArray[np.float64]
HALVINGS = 50
"""Halvings of the interval of the bound, of which each doubles the digits that are known: more than a float has."""
ROUNDING = 1e-9
"""Fraction by which a whole number of microbatches or layers may exceed what time and memory allow."""


@dataclass(frozen=True, slots=True)
class _Stages:
    """All stages on the devices of a cluster, one in each row. each: samples times layers of a microbatch for each device of
    the slot; work: seconds of a microbatch, k (f + b); once and more: those of latency for a stage, and for each microbatch;
    most: microbatches of the batch."""

    devices: int
    each: Floats
    work: Floats
    once: Floats
    more: Floats
    most: Floats

    def completed(self, seconds: Seconds) -> float:
        """Most samples times layers that the devices of the cluster pass within so many seconds."""
        left = seconds - self.once * (1 - ROUNDING)
        with np.errstate(divide="ignore", invalid="ignore"):  # a head alone, or devices that take no time
            number = np.minimum(seconds / self.work, np.where(self.more > 0, left / self.more, np.where(left < 0, 0.0, np.inf)))
        number = np.clip(np.floor(number * (1 + ROUNDING)), 0.0, self.most)
        return self.devices * float(np.max(number * self.each, initial=0.0))


def stages_seconds(request: Request, every: Modes) -> Seconds:
    """Least seconds in which all devices pass the batch through all layers, each with the stage that suits it; infinite where
    memory has no room for any. The larger one of the bounds with the head and without."""
    latency: dict[int, Seconds] = {}
    for one in (mode for own in every.values() for mode in own):
        latency[one.size] = min(latency.get(one.size, math.inf), one.forward + one.inputs)
    head = min((mode.seconds[2] / mode.seconds[0] for own in every.values() for mode in own), default=0.0)
    most = {cluster.name: [most_layers(request, cluster, one) for one in every[cluster.name]] for cluster in request.clusters()}
    found = []
    for counted in (0.0, head):
        total = (request.workload.model.layers + counted) * request.workload.global_batch_size
        pairs = {name: zip(every[name], own, strict=True) for name, own in most.items()}
        stages = [_stages(request, one, pairs[one.name], latency, counted) for one in request.clusters()]
        found.append(_least_seconds(stages, total))
    return max(found)


def _least_seconds(stages: Sequence[_Stages], total: float) -> Seconds:
    """Least seconds in which all devices pass so many samples times layers."""
    low, high = 0.0, 1.0
    while sum(own.completed(high) for own in stages) < total:
        low, high = high, 2 * high
        if math.isinf(high):
            return high
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if sum(own.completed(middle) for own in stages) >= total else (middle, high)
    return low


def _stages(
    request: Request, cluster: Cluster, modes: Iterable[tuple[Mode, int]], latency: Mapping[int, Seconds], head: float
) -> _Stages:  # fmt: skip
    """The stages of a cluster, without the head and with it, in all of its modes, each with the most layers that fit;
    `latency`: the least f + i of a layer by samples of a microbatch, `head`: layers as which the head counts."""
    layers, batch = request.workload.model.layers, request.workload.global_batch_size
    columns = []
    for mode, fit in modes:
        whole = np.arange(fit + 1, dtype=float)
        held, counted = np.concatenate([whole[1:], whole]), np.concatenate([whole[1:], whole + head])
        once = (layers - held) * latency[mode.size] + held * mode.forward
        most = np.full_like(held, batch // mode.size)
        columns.append((counted * mode.size / mode.devices, counted * mode.seconds[0], once, held * mode.inputs, most))
    joined = (np.concatenate(one) for one in zip(*columns, strict=True)) if columns else (np.zeros(0) for _ in range(5))
    return _Stages(cluster.devices, *joined)


def most_layers(request: Request, cluster: Cluster, mode: Mode) -> int:
    """Most layers of a stage that fit the memory of a device, beside one microbatch in flight."""
    workload, layers = request.workload, request.workload.model.layers
    if workload.model.experts:
        return layers
    own, others = configuration(request, mode.tp, mode.cp, mode.size), request.topology.fleet.devices
    config = replace(own, zero_stage=1, other_dp_cp=others)  # the state of the optimizer is shared by all of them at most
    full = replace(config, recompute="full")
    inputs, _ = memory.layer_activation_bytes(workload, full)
    room = request.topology.room(cluster.node.device) - memory.outside_torch(config)

    def fits(number: int) -> bool:
        kept, recomputed = (_bytes(request, one, number) for one in (config, full))
        return min(kept, recomputed - inputs) <= room * (1 + ROUNDING)

    low, high = 0, layers + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _bytes(request: Request, config: ParallelConfig, layers: int) -> Bytes:
    return memory.rank_bytes(request.workload, config, layers, 1, False, False)
