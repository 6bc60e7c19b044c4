"""Rooflines of a plan: FLOP/s of its kernels and stages on each type of device, compared with its peak and memory bandwidth.

At an arithmetic intensity of I FLOPs per byte nothing runs faster than min(peak, I x memory bandwidth) (Williams, Waterman and
Patterson, CACM 52(4), 2009). Work is that of one microbatch on one rank, forward and backward together, without recomputation
and communication: a matrix product moves its three matrices once, the attention core moves the bytes of
`sim.kernels.formulas.attention_work`, and elementwise passes move bytes only. In the memory-bound region a point may be above
the roof: products if the fitted `memory_efficiency` of a device is above 1 (caches help), fused attention because its few bytes
take no time in `sim.kernels.formulas`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from sim.analytic import stage_costs
from sim.hardware.device_spec import DeviceSpec
from sim.kernels import compute, formulas
from sim.kernels.frozen_weights import trained_layer_parameters
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from sim.units import Bytes, BytesPerSecond, Flops, FlopsPerSecond, Seconds
from sim.workload.kernels import Attention, Gemm, Kernel
from sim.workload.workload import Workload

FEW = 4
"""Maximum number of non-contiguous stages that a label lists; a guess at what fits a chart."""


@dataclass(frozen=True, slots=True)
class Point:
    """A kernel or a stage with its work and its seconds."""

    name: str
    flops: Flops
    moved: Bytes
    seconds: Seconds

    @property
    def intensity(self) -> float:
        """Arithmetic intensity: FLOPs per byte of device memory traffic."""
        return self.flops / self.moved

    @property
    def rate(self) -> FlopsPerSecond:
        """Attained FLOP/s."""
        return self.flops / self.seconds


@dataclass(frozen=True, slots=True)
class Roofline:
    """Roofline of a type of device: its peak at the precision it runs, its memory bandwidth, and the points under that roof.

    Seconds of `products` and `attention` always come from formulas; so do those of `stages`, unless `measured`: then they come
    from the device's profile. `passes` is the bandwidth that elementwise passes reach.
    """

    device: str
    precision: str
    peak: FlopsPerSecond
    bandwidth: BytesPerSecond
    passes: BytesPerSecond
    products: tuple[Point, ...]
    attention: tuple[Point, ...]
    stages: tuple[Point, ...]
    measured: bool

    def roof(self, intensity: float) -> FlopsPerSecond:
        """Maximum FLOP/s of the device at an arithmetic intensity."""
        return min(self.peak, intensity * self.bandwidth)


def rooflines(plan: Plan) -> tuple[Roofline, ...]:
    """A roofline for each type of device that the plan uses, in the order of its ranks."""
    pp_ranks: dict[DeviceSpec, set[int]] = {}
    for rank, device in enumerate(plan.placement):
        spec = replace(plan.fleet.spec(device), price=None)
        pp_ranks.setdefault(spec, set()).add(plan.config.coordinates(rank)[2])
    return tuple(_roofline(plan, device, sorted(own)) for device, own in pp_ranks.items())


def _roofline(plan: Plan, device: DeviceSpec, pp_ranks: list[int]) -> Roofline:
    workload, config = plan.workload.usual, plan.config.recomputing("none")
    stages = sorted(stage for pp_rank in pp_ranks for stage in plan.stages_of(pp_rank))
    kernels = compute.rank_kernels(workload, config)
    products = _points(device, workload, config, (kernel for kernel in kernels if isinstance(kernel, Gemm)))
    if plan.head_stage in stages:
        last = (kernel for kernel in compute.last_kernels(plan.workload, config) if isinstance(kernel, Gemm))
        products += _points(*compute.of_head(device, plan.workload), config, last)
    runs = device.runs(workload.precision)
    return Roofline(
        device.name,
        runs,
        device.peak_of(runs),
        device.memory_bandwidth,
        device.memory_bandwidth * device.elementwise_efficiency,
        products,
        _points(device, workload, config, (kernel for kernel in kernels if isinstance(kernel, Attention))),
        _stages(plan, device, stages),
        compute.measured(device, workload, config) is not None,
    )


def _points(device: DeviceSpec, workload: Workload, config: ParallelConfig, kernels: Iterable[Kernel]) -> tuple[Point, ...]:
    """One point for all kernels of a name."""
    found: dict[str, list[Kernel]] = {}
    for kernel in kernels:
        found.setdefault(kernel.name, []).append(kernel)
    return tuple(
        Point(
            name,
            *_work(device, workload, config, own),
            sum(sum(formulas.kernel_seconds(kernel, device, workload, config)) for kernel in own),
        )
        for name, own in found.items()
    )


def _stages(plan: Plan, device: DeviceSpec, stages: list[int]) -> tuple[Point, ...]:
    """A point for each end stage, and one for all inner stages, since all layers are equal."""
    last = plan.head_stage
    inner = [stage for stage in stages if stage not in (0, last) and plan.stages[stage].layers]
    ends = [[stage] for stage in dict.fromkeys((0, last)) if stage in stages]
    found = (_stage(plan, device, group) for group in sorted(group for group in (*ends, inner) if group))
    return tuple(point for point in found if point.flops)


def _named(group: list[int]) -> str:
    """Label of a group of stages: a contiguous range by its ends, a few by number, many (virtual stages) by their count."""
    first, last = group[0], group[-1]
    if first == last:
        return f"stage {first}"
    if last - first == len(group) - 1:
        return f"stages {first}-{last}"
    return f"stages {', '.join(map(str, group))}" if len(group) <= FEW else f"{len(group)} stages, {first} to {last}"


def _stage(plan: Plan, device: DeviceSpec, group: list[int]) -> Point:
    """The point of a group of equal stages, computed from the first one."""
    config, stage = plan.config.recomputing("none"), group[0]
    workload, layers, (first, last) = plan.workload_of((stage,)), plan.stages[stage].layers, plan.ends((stage,))
    parts = (
        *(
            (number, compute.rank_kernels(alike, config), trained_layer_parameters(alike, config))
            for number, alike in workload.alike(layers)
        ),
        (int(first), compute.first_kernels(workload, config), 0.0),
        (int(last), compute.last_kernels(workload, config), compute.head_parameters(workload, config)),
    )
    flops = moved = 0.0
    for times, kernels, parameters in parts:
        done, read = _work(device, workload, config, kernels)
        flops += times * done
        moved += times * (read + compute.accumulated(device, workload, config) * parameters)
    return Point(_named(group), flops, moved, sum(stage_costs.compute_seconds(device, workload, config, layers, first, last)))


def _work(device: DeviceSpec, workload: Workload, config: ParallelConfig, kernels: Iterable[Kernel]) -> tuple[Flops, Bytes]:
    flops, moved = zip(*(formulas.kernel_work(kernel, device, workload, config) for kernel in kernels), strict=True)
    return sum(flops), sum(moved)
