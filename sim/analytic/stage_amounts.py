"""What one stage moves and updates in a step: gradients, weights and the optimizer; and the seconds of its weight gradients.

All of it is linear in the layers of the stage where they are equal."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from sim.hardware.device_spec import DeviceSpec
from sim.kernels import compute, layer_groups, memory, offload, payloads
from sim.kernels.casts import weight_cast_bytes
from sim.kernels.formulas import pass_seconds
from sim.kernels.recomputation import backward_gathers
from sim.kernels.tensor_lists import list_seconds
from sim.network.memory_traffic import RING_TRAFFIC
from sim.plan import schedules
from sim.plan.parallel_config import ParallelConfig
from sim.units import Bytes, Seconds
from sim.workload.model import NARROW
from sim.workload.workload import Workload

ByGroup: TypeAlias = tuple[tuple[str, Bytes], ...]
"""(kind of gradient group, bytes) of a stage."""


@functools.lru_cache(maxsize=65536)
def weight_seconds(device: DeviceSpec, workload: Workload, config: ParallelConfig, layers: int, last: bool) -> Seconds:
    """Weight-gradient seconds of a stage's backward; 0 where the schedule does not split the backward."""
    if not schedules.get(config.schedule).SPLITS_BACKWARD:
        return 0.0
    head = compute.head_parts(device, workload, config)[2] if last else 0.0
    return sum(number * compute.layer_parts(device, one, config)[2] for number, one in workload.alike(layers)) + head


def traffic_seconds(
    device: DeviceSpec, workload: Workload, config: ParallelConfig, layers: int, first: bool, last: bool
) -> tuple[Seconds, Seconds]:
    """(forward, backward) seconds of a stage and microbatch in which collectives of ZeRO 3 take the memory from compute: two
    gathers of weights and a reduction of gradients move `RING_TRAFFIC` times their bytes, on one node as on many. The time in
    which a layer's kernels wait for launches hides those of the layer, and collectives that overlap nothing take none. Linear
    in layers that are equal.

    That nothing else hides them is an assumption, which runs of FSDP on devices of unlike memory support (docs/model.md).
    With `DeviceSpec.tensor_lists` the host's lists (`sim.kernels.tensor_lists`), which nothing hides either, are added."""
    if not config.shards_parameters:
        return 0.0, 0.0
    kinds = tuple(workload.of_stage(layers, first, last).alike(layers))
    ahead, back = _list_seconds(device, config, kinds)
    if config.gathers_between:
        return ahead, back
    rate = device.memory_bandwidth * device.elementwise_efficiency / RING_TRAFFIC
    inner, taken = [0.0, 0.0], [0.0, 0.0]
    for number, one in kinds:
        gaps = compute.launch_gaps(device, one, config)
        for way, moved in enumerate(_sharded_bytes(one, config, number, False, False)):
            inner[way] += moved
            taken[way] += max(moved / rate - number * gaps[way], 0.0)
    whole = _sharded_bytes(workload, config, layers, first, last)
    forward, backward = (own + (moved - part) / rate for own, moved, part in zip(taken, whole, inner, strict=True))
    return forward + ahead, backward + back


def _list_seconds(device: DeviceSpec, config: ParallelConfig, kinds: Iterable[tuple[int, Workload]]) -> tuple[Seconds, Seconds]:
    """(forward, backward) seconds of the lists of tensors of (number, kind) of layers (`sim.kernels.tensor_lists`)."""
    if not device.tensor_lists:
        return 0.0, 0.0
    ahead = back = 0.0
    for number, one in kinds:
        gathered, both = _sharded_bytes(one, config, 1, False, False)
        kernels, gathers = compute.rank_kernels(one, config), backward_gathers(one, config)
        forward, backward = list_seconds(device, config, kernels, (gathered, both - gathered), gathers)
        ahead, back = ahead + number * forward, back + number * backward
    return ahead, back


def _sharded_bytes(workload: Workload, config: ParallelConfig, layers: int, first: bool, last: bool) -> tuple[Bytes, Bytes]:
    """Bytes of the collectives of ZeRO 3 in a forward (weights) and in a backward (weights and gradients) of a stage."""
    shape = workload, config, layers, first, last
    gathered, reduced = (sum(n for _, n in of(*shape)) for of in (payloads.parameter_bytes, payloads.gradient_bytes))
    return gathered, gathered + reduced


def optimizer_seconds(
    device: DeviceSpec, workload: Workload, config: ParallelConfig, layers: int, first: bool, last: bool
) -> Seconds:
    """Seconds of the optimizer step of a stage on one rank, on the device or on its host, and of the casts of new weights."""
    return _update_seconds(device, workload, config, layers, first, last) + _cast_seconds(device, workload, config, layers)


def _cast_seconds(device: DeviceSpec, workload: Workload, config: ParallelConfig, layers: int) -> Seconds:
    """Seconds of the casts of a stage's weights to fp8 or mxfp8, once a step (`sim.kernels.casts.weight_cast_bytes`)."""
    if workload.precision not in NARROW or workload.adapter is not None:
        return 0.0
    shards, curve = {"dp": config.shards, "edp": config.expert_gradient_ranks}, device.curve_of(workload.precision)
    gathered = config.fp8_param_gather and workload.precision == "fp8" and config.zero_stage >= 1
    moved = 0.0
    for group, number in layer_groups.linear_parameters(workload, config, layers).items():
        moved += number * weight_cast_bytes(curve, config.current_scaling, 1 / shards[group] if gathered else None)
    return pass_seconds(moved, device) if moved else 0.0


def _update_seconds(
    device: DeviceSpec, workload: Workload, config: ParallelConfig, layers: int, first: bool, last: bool
) -> Seconds:
    shared = memory.by_sharing(workload, config, layers, first, last)
    owned = sum(parameters / (sharing if config.zero_stage >= 1 else 1) for _, parameters, sharing in shared)
    held = sum(parameters for _, parameters, _ in shared)
    if config.offloads_parameters:
        return offload.on_host_seconds(device, workload, owned)
    if config.offloads_optimizer:
        return offload.optimizer_seconds(device, owned, held, workload.optimizer)
    row = compute.measured(device, workload, config)
    if row and row.update:
        return row.update * owned
    return compute.optimizer_seconds(device, owned, held, workload.optimizer)


class Amounts(NamedTuple):
    """What a stage moves and updates in a step on one rank. reduced, gathered: bytes of gradients and of weights; parameters:
    those with gradients; optimizer: seconds of the update on the slowest device type."""

    reduced: ByGroup
    gathered: ByGroup
    parameters: float
    optimizer: Seconds

    @classmethod
    def of(
        cls, workload: Workload, config: ParallelConfig, layers: int, first: bool, last: bool, specs: tuple[DeviceSpec, ...]
    ) -> Amounts:
        """The amounts of a stage; `first`, `last`: it has the embedding, the head."""
        shape = workload, config, layers, first, last
        return cls(
            payloads.gradient_bytes(*shape),
            payloads.parameter_bytes(*shape) if config.zero_stage else (),
            memory.stage_parameters(*shape),
            max(optimizer_seconds(spec, *shape) for spec in specs),
        )

    def extended(self, two: Amounts, layers: int) -> Amounts:
        """The amounts with `layers` layers more; `two`: with one layer more."""
        return Amounts(
            _further(self.reduced, two.reduced, layers),
            _further(self.gathered, two.gathered, layers),
            self.parameters + layers * (two.parameters - self.parameters),
            self.optimizer + layers * (two.optimizer - self.optimizer),
        )


def amounts(
    workload: Workload, config: ParallelConfig, layers: int, first: bool, last: bool, specs: tuple[DeviceSpec, ...]
) -> Amounts:
    """`Amounts.of`; from the amounts of one layer and of two where they give those of more (`extends`)."""
    if layers < 1 or not extends(workload, config, specs):
        return Amounts.of(workload, config, layers, first, last, specs)
    one, two = _of_one_and_two(workload, config, first, last, specs)
    return one if layers == 1 else one.extended(two, layers - 1)


@functools.lru_cache(maxsize=4096)
def _of_one_and_two(
    workload: Workload, config: ParallelConfig, first: bool, last: bool, specs: tuple[DeviceSpec, ...]
) -> tuple[Amounts, Amounts]:
    one, two = (Amounts.of(workload, config, layers, first, last, specs) for layers in (1, 2))
    return one, two


def extends(workload: Workload, config: ParallelConfig, specs: tuple[DeviceSpec, ...]) -> bool:
    """Whether the costs of stages of one layer and of two give those of more: on one device type, where layers are equal. Only
    collectives in buckets are not linear in the layers."""
    return len(specs) == 1 and workload.model.is_uniform and not config.recompute_layers


def _further(one: ByGroup, two: ByGroup, layers: int) -> ByGroup:
    """Bytes with `layers` layers more than `one`; `two`: with one more."""
    return tuple([(group, own + layers * (more - own)) for (group, own), (_, more) in zip(one, two, strict=True)])


def synchronisation(
    workload: Workload, config: ParallelConfig, layers: int, first: bool, last: bool
) -> tuple[tuple[str, str, Bytes, float], ...]:
    """(kind of group, operation, payload, count) of one stage's gradient and parameter collectives in one step.

    Overlapped collectives are per bucket. Groups of two kinds ("dp", "edp") then run concurrently: the longer is a lower bound.
    """
    shape = workload, config, layers, first, last
    gathered = payloads.parameter_bytes(*shape) if config.zero_stage else ()
    bare = bare_stages(workload, first, last)
    return in_buckets(config, payloads.gradient_bytes(*shape), gathered, payloads.buckets(*shape), bare)


def bare_stages(workload: Workload, first: bool, last: bool) -> dict[str, int]:
    """Kind of group -> virtual stages, at most, that have nothing to sum over it: those with the embedding or the head alone
    have no experts, and no adapters."""
    ends = int(first) + int(last)
    return {"edp": ends, "dp": ends if workload.adapter is not None else 0}


def in_buckets(
    config: ParallelConfig, gradients: ByGroup, parameters: ByGroup, buckets: int, bare: Mapping[str, int]
) -> tuple[tuple[str, str, Bytes, float], ...]:
    """`synchronisation` of a stage with these bytes and so many buckets. `bare`: `bare_stages`, which are left out of the
    number of collectives, for a lower bound."""

    def number(group: str, is_by_bucket: bool) -> int:
        if config.vpp == 1:
            return buckets if is_by_bucket else 1
        return max((buckets if is_by_bucket else config.vpp) - bare.get(group, 0), 1)

    reduced, gathered = (way or config.gathers_between for way in (config.reduces_behind, config.gathers_ahead))
    work = [(group, config.reduction, n / (many := number(group, reduced)), float(many)) for group, n in gradients]
    if config.zero_stage == 0:
        return tuple(work)
    return (*work, *((group, "all_gather", n / (many := number(group, gathered)), float(many)) for group, n in parameters))
