"""Stages on clusters -> Plan: the device of every rank, the NIC and the collective of every group.

Tensor-parallel groups stand inside a node, the replicas of a stage side by side under one fabric, stages one after the other:
each stage takes the next free slots of its cluster. Slots fill one node after the other or, if asked for, lie evenly on the
fewest nodes: a ring is as slow as its host with the fewest NICs. Where a cluster's spine is narrower than its leaves, its nodes
then change places (`planner.placement.leaves`). Every group gets the fastest NIC that all its members share, and the collective
that needs the least time in a step.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from planner.placement import leaves
from planner.request import Request
from planner.space.shapes import Shape, slot, spread
from sim import __version__
from sim.analytic import plan_costs, stage_costs
from sim.errors import PlanError
from sim.hardware.cluster import Device
from sim.network.collective_costs import CollectiveCosts
from sim.network.replica_rows import Rows
from sim.network.routes import Capacities
from sim.plan.plan import Group, MadeBy, ParallelConfig, Plan, Stage, groups_of


def build(request: Request, shape: Shape, stages: tuple[tuple[str, int], ...], strategy: str, evenly: bool = False) -> Plan:
    """The plan of a pipeline given as (cluster, layers) of every place. Raises PlanError where it cannot be."""
    fleet, seats = request.topology.fleet, dict[str, Iterator[tuple[Device, ...]]]()
    for name, number in Counter(name for name, _ in stages).items():
        cluster, taken = fleet.cluster(name), number * shape.slots
        lies = spread(cluster, shape.tp, taken) if evenly else [slot(cluster, shape.tp, index) for index in range(taken)]
        seats[name] = iter(lies)
    slots = (devices for name, _ in stages for devices in itertools.islice(seats[name], shape.slots))
    devices = list(itertools.chain.from_iterable(slots))
    plan = _plain(request, shape, tuple(layers for _, layers in stages), tuple(devices), strategy)
    standing = leaves.arranged(plan)
    return _with_collectives(plan if standing == plan.placement else replace(plan, placement=standing))


def assemble(
    request: Request,
    shape: Shape,
    layers: tuple[int, ...],
    devices: tuple[Device, ...],
    strategy: str,
    microbatches: tuple[int, ...] = (),
) -> Plan:
    """The plan that puts rank r on devices[r], with so many layers at every pipeline place.

    `microbatches` are those of each replica; all have equally many where it is empty. Raises PlanError."""
    return _with_collectives(_plain(request, shape, layers, devices, strategy, microbatches))


def _plain(
    request: Request,
    shape: Shape,
    layers: tuple[int, ...],
    devices: tuple[Device, ...],
    strategy: str,
    microbatches: tuple[int, ...] = (),
) -> Plan:
    """The plan with all collectives as rings."""
    config = shape.config(request.workload, len(layers))
    if microbatches:
        config = replace(config, num_microbatches=microbatches)
    return Plan(
        topology=request.topology,
        workload=request.workload,
        config=config,
        stages=_stages(layers, config),
        placement=devices,
        groups=groups_of(request.topology.fleet, config, devices),
        made_by=MadeBy(strategy, __version__),
    )


def _stages(layers: tuple[int, ...], config: ParallelConfig) -> tuple[Stage, ...]:
    """Layers of every place, cut into vpp virtual stages as evenly as whole layers allow."""
    if min(layers) < config.vpp:
        raise PlanError(f"a pipeline place of {min(layers)} layers cannot be cut into vpp {config.vpp} stages")
    stages, first = [], 0
    for count in virtual(layers, config.vpp):
        stages.append(Stage(first, first + count))
        first += count
    return tuple(stages)


def virtual(layers: tuple[int, ...], vpp: int) -> tuple[int, ...]:
    """Layers of every virtual stage in pipeline order, of places that hold so many in all."""
    return tuple(count * (chunk + 1) // vpp - count * chunk // vpp for chunk in range(vpp) for count in layers)


def _with_collectives(plan: Plan) -> Plan:
    """Choose the collective of every tensor- and data-parallel group, place by place."""
    config = plan.config
    capacities = Capacities(plan.fleet)
    chosen: dict[tuple[str, int], str] = {}
    for place in range(config.pp):
        stages = plan.stages_of(place)
        layers = sum(plan.stages[stage].layers for stage in stages)
        ends = 0 in stages, config.num_stages - 1 in stages
        paces = CollectiveCosts(
            plan.fleet, config, Rows.of(plan.fleet, plan_costs.pipeline_rank_devices(plan, place)), capacities
        )
        at_place = stage_costs.StageCosts(plan.workload, config, paces)
        for kind, degree in (("tp", config.tp), ("dp", config.dp_cp)):
            if degree > 1:
                chosen[kind, place] = at_place.collective(kind, layers, *ends)

    def with_choice(group: Group) -> Group:
        name = chosen.get((group.kind, config.place(group.ranks[0])[2]))
        return group if name is None else replace(group, collective=name)

    return replace(plan, groups=tuple(with_choice(group) for group in plan.groups))
