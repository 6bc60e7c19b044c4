"""Plan -> rooflines: FLOP/s that kernels and stages attain on each type of device, beside what its peak and memory allow.

At an arithmetic intensity of I FLOPs a byte nothing runs faster than min(peak, I x memory bandwidth) (Williams, Waterman and
Patterson, CACM 52(4), 2009). Work is that of one microbatch on one rank, forward and backward together, recomputation and
communication left out: a product moves its three matrices once, the attention core as `sim.kernels.compute.attention_work`
says, and elementwise passes move bytes only. Left of the bend a point may lie above the roof: products where the fitted
`memory_efficiency` of a device is above 1 (caches help), fused attention because its few bytes take no time in
`sim.kernels.compute`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from sim.analytic import stage_costs
from sim.hardware.cluster import DeviceSpec
from sim.kernels import compute
from sim.plan.plan import Plan
from sim.units import Bytes, BytesPerSecond, Flops, FlopsPerSecond, Seconds
from sim.workload.model import Attention, Gemm, Kernel

FEW = 4
"""Scattered stages that are named one by one: more would leave a chart no room."""


@dataclass(frozen=True, slots=True)
class Point:
    """A kernel or a stage: its work, and the seconds that it takes."""

    name: str
    flops: Flops
    moved: Bytes
    seconds: Seconds

    @property
    def intensity(self) -> float:
        """FLOPs for each byte of device memory."""
        return self.flops / self.moved

    @property
    def rate(self) -> FlopsPerSecond:
        """FLOP/s that are attained."""
        return self.flops / self.seconds


@dataclass(frozen=True, slots=True)
class Roofline:
    """A type of device: its peak at the precision it runs, its memory, and the points under that roof.

    `products` and `attention` are always by formula; `stages` are so too, unless they are `measured`: then their seconds are
    those of the device's profile. `passes` is the bandwidth that elementwise passes reach.
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
        """The most that the device can do at so many FLOPs a byte."""
        return min(self.peak, intensity * self.bandwidth)


def rooflines(plan: Plan) -> tuple[Roofline, ...]:
    """One for each type of device that the plan uses, in the order of its ranks."""
    places: dict[DeviceSpec, set[int]] = {}
    for rank, device in enumerate(plan.placement):
        spec = replace(plan.fleet.spec(device), price=None)
        places.setdefault(spec, set()).add(plan.config.place(rank)[2])
    return tuple(_roofline(plan, device, sorted(own)) for device, own in places.items())


def _roofline(plan: Plan, device: DeviceSpec, places: list[int]) -> Roofline:
    workload, config = plan.workload, replace(plan.config, recompute="none")
    stages = sorted(stage for place in places for stage in plan.stages_of(place))
    kernels = compute.rank_kernels(workload, config)
    if plan.config.num_stages - 1 in stages:
        kernels += compute.last_kernels(workload, config)
    runs = device.runs(workload.precision)
    return Roofline(
        device.name,
        runs,
        device.peak_of(runs),
        device.memory_bandwidth,
        device.memory_bandwidth * device.elementwise_efficiency,
        _points(plan, device, (kernel for kernel in kernels if isinstance(kernel, Gemm))),
        _points(plan, device, (kernel for kernel in kernels if isinstance(kernel, Attention))),
        _stages(plan, device, stages),
        compute.measured(device, workload, config) is not None,
    )


def _points(plan: Plan, device: DeviceSpec, kernels: Iterable[Kernel]) -> tuple[Point, ...]:
    """A point for the kernels of each name."""
    found: dict[str, list[Kernel]] = {}
    for kernel in kernels:
        found.setdefault(kernel.name, []).append(kernel)
    return tuple(
        Point(
            name,
            *_work(plan, own),
            sum(sum(compute.kernel_seconds(kernel, device, plan.workload, plan.config)) for kernel in own),
        )
        for name, own in found.items()
    )


def _stages(plan: Plan, device: DeviceSpec, stages: list[int]) -> tuple[Point, ...]:
    """A point for each stage; those of layers alone are one, for every layer is like every other."""
    last = plan.config.num_stages - 1
    inner = [stage for stage in stages if stage not in (0, last) and plan.stages[stage].layers]
    ends = [[stage] for stage in dict.fromkeys((0, last)) if stage in stages]
    found = (_stage(plan, device, group) for group in sorted(group for group in (*ends, inner) if group))
    return tuple(point for point in found if point.flops)


def _named(group: list[int]) -> str:
    """Stages as a point is called: a run by its ends, a few one by one, many by how many (virtual stages lie scattered)."""
    first, last = group[0], group[-1]
    if first == last:
        return f"stage {first}"
    if last - first == len(group) - 1:
        return f"stages {first}-{last}"
    return f"stages {', '.join(map(str, group))}" if len(group) <= FEW else f"{len(group)} stages, {first} to {last}"


def _stage(plan: Plan, device: DeviceSpec, group: list[int]) -> Point:
    """Stages that are alike, of which the first is reckoned."""
    workload, config, stage = plan.workload, replace(plan.config, recompute="none"), group[0]
    layers, first, last = plan.stages[stage].layers, stage == 0, stage == plan.config.num_stages - 1
    parts = (
        (layers, compute.rank_kernels(workload, config), compute.layer_parameters(workload, config)),
        (int(first), compute.first_kernels(workload, config), 0.0),
        (int(last), compute.last_kernels(workload, config), compute.head_parameters(workload, config)),
    )
    flops = moved = 0.0
    for times, kernels, parameters in parts:
        done, read = _work(plan, kernels)
        flops += times * done
        moved += times * (read + compute.accumulated(parameters, workload, config))
    return Point(_named(group), flops, moved, sum(stage_costs.compute_seconds(device, workload, config, layers, first, last)))


def _work(plan: Plan, kernels: Iterable[Kernel]) -> tuple[Flops, Bytes]:
    flops, moved = zip(*(compute.work(kernel, plan.workload, plan.config) for kernel in kernels), strict=True)
    return sum(flops), sum(moved)
