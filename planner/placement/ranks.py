"""Build a plan from stages on clusters: the device of every rank, the NIC and the collective of every group.

A tensor-parallel group is inside a node, and each stage takes the next free slots of its cluster. Slots fill one node after the
other or, with `evenly`, are spread over the fewest nodes, because a ring is as slow as its host with the fewest NICs. In an
oversubscribed cluster the nodes are then permuted (`planner.placement.leaves`). Every group gets the fastest NIC that all its
members share, and the collective with the least time in a step."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from planner.placement import leaves
from planner.placement.recomputation import recomputing
from planner.request import Request
from planner.space.shape import Shape
from planner.space.shapes import slot, spread
from sim import __version__
from sim.analytic import plan_costs, stage_costs
from sim.errors import NotDefined
from sim.hardware.cluster import Device, Fleet
from sim.network.collective_costs import CollectiveCosts
from sim.network.paths import Capacities
from sim.network.replica_rows import ReplicaRows
from sim.plan.groups import Group, groups_of
from sim.plan.parallel_config import BLOCK, ParallelConfig
from sim.plan.plan import MadeBy, Plan, Stage


def build(request: Request, shape: Shape, stages: tuple[tuple[str, int], ...], strategy: str, evenly: bool = False) -> Plan:
    """The plan of a pipeline given as (cluster, layers) of every stage.

    Raises NoRoute; NotDefined, also where the target or the limits of the request refuse it."""
    fleet, free_slots = request.topology.fleet, dict[str, Iterator[tuple[Device, ...]]]()
    for name, number in Counter(name for name, _ in stages).items():
        cluster, taken, tp = fleet.cluster(name), number * shape.slots, shape.tp_on(name)
        found = spread(cluster, tp, taken) if evenly else [slot(cluster, tp, index) for index in range(taken)]
        free_slots[name] = iter(found)
    slots = (devices for name, _ in stages for devices in itertools.islice(free_slots[name], shape.slots))
    devices = list(itertools.chain.from_iterable(slots))
    degrees = tuple(shape.tp_on(name) for name, _ in stages)
    plan = _with_rings(request, shape, tuple(layers for _, layers in stages), tuple(devices), strategy, degrees=degrees)
    placement = leaves.arranged(plan)
    plan = plan if placement == plan.placement else replace(plan, placement=placement)
    return launched(request, recomputing(plan) if shape.recompute == BLOCK else (plan,))


def assemble(
    request: Request,
    shape: Shape,
    layers: tuple[int, ...],
    devices: tuple[Device, ...],
    strategy: str,
    microbatches: tuple[int, ...] = (),
    degrees: tuple[int, ...] = (),
) -> Plan:
    """The plan with rank r on devices[r] and layers[i] layers on pipeline stage i.

    `microbatches` are those of each replica, `degrees` is the tp of each stage; empty for those of the shape. Raises as
    `build`."""
    return launched(request, (_with_rings(request, shape, layers, devices, strategy, microbatches, degrees),))


def with_layers(request: Request, plan: Plan, layers: tuple[int, ...]) -> Plan:
    """The plan with layers[i] layers on pipeline stage i, on the same devices; stages recompute what memory requires, unless
    recomputation is pinned or hosts keep activations.

    Raises as `build`."""
    moved = replace(plan, stages=stages_of(layers, plan.config), prediction=None, certificate=None)
    chooses = request.wishes.recompute is None and not plan.config.offloads_activations
    return launched(request, recomputing(moved) if chooses else (moved,))


def launched(request: Request, every: Iterable[Plan]) -> Plan:
    """The first of some plans with ring collectives that the target of the request can run; with the fastest collectives where
    the target can express them.

    Raises NotDefined where the target can run none, or a limit of the request forbids them."""
    refused = ""
    for rings in every:
        refused = request.refuses(rings)
        if not refused:
            fastest = with_collectives(rings)
            return rings if request.refuses(fastest) else fastest
    raise NotDefined(refused)


def _with_rings(
    request: Request,
    shape: Shape,
    layers: tuple[int, ...],
    devices: tuple[Device, ...],
    strategy: str,
    microbatches: tuple[int, ...] = (),
    degrees: tuple[int, ...] = (),
) -> Plan:
    """The plan with ring collectives everywhere; `degrees`: tp of every stage, empty for that of the shape."""
    config = _config(request, shape, degrees or (shape.tp,) * len(layers))
    if microbatches or not shape.divides(request.workload):
        config = replace(config, num_microbatches=microbatches or shape.microbatches_of_replicas(request.workload))
    return Plan(
        topology=request.topology,
        workload=request.workload,
        config=config,
        stages=stages_of(layers, config),
        placement=devices,
        groups=groups_of(request.topology.fleet, config, devices),
        made_by=MadeBy(strategy, __version__),
    )


def _config(request: Request, shape: Shape, degrees: tuple[int, ...]) -> ParallelConfig:
    """The configuration of a pipeline of a shape with these tensor-parallel degrees."""
    config = replace(shape, tp=max(degrees), cluster_tp=()).config(request.workload, len(degrees))
    return config if min(degrees) == config.tp else replace(config, stage_tp=degrees)


def stages_of(layers: tuple[int, ...], config: ParallelConfig) -> tuple[Stage, ...]:
    """The virtual stages of a pipeline: each stage's layers cut into vpp parts as evenly as whole layers allow."""
    if min(layers) < config.vpp:
        raise NotDefined(f"a pipeline stage of {min(layers)} layers cannot be cut into vpp {config.vpp} virtual stages")
    stages, first, parts = [], 0, virtual(layers, config.vpp)
    for stage in range(len(parts)):
        count = parts[stage - stage % config.pp + config.rank_of(stage)]
        stages.append(Stage(first, first + count))
        first += count
    return tuple(stages)


def virtual(layers: tuple[int, ...], vpp: int) -> tuple[int, ...]:
    """Layers of every virtual stage in pipeline order, where stage i holds layers[i] in all."""
    return tuple(count * (chunk + 1) // vpp - count * chunk // vpp for chunk in range(vpp) for count in layers)


def virtual_stages(layers: NDArray[np.int64], vpp: int) -> NDArray[np.int64]:
    """`virtual` of many pipelines: shape (pipelines, stages) becomes (pipelines, vpp x stages)."""
    ends = layers[:, None, :] * np.arange(vpp + 1)[:, None] // vpp
    return np.diff(ends, axis=1).reshape(len(layers), -1)


@dataclass(frozen=True, slots=True)
class _Alike:
    """The rows of a stage. They are equal to all rows of the same `pattern`, for collectives take equally long there."""

    rows: ReplicaRows = field(compare=False)
    pattern: object


@functools.lru_cache(maxsize=64)  # plans that differ only in the layers of their stages have the same groups
def _costs_of(fleet: Fleet, config: ParallelConfig, alike: _Alike) -> CollectiveCosts:
    """Costs of the collectives of a stage."""
    return CollectiveCosts(fleet, config, alike.rows, _capacities_of(fleet))


@functools.lru_cache(maxsize=2)
def _capacities_of(fleet: Fleet) -> Capacities:
    """The rates of the links of a fleet, with the costs inside nodes that stages share."""
    return Capacities(fleet)


def with_collectives(plan: Plan) -> Plan:
    """Choose the collective of every tensor- and data-parallel group, stage by stage."""
    config = plan.config
    chosen: dict[tuple[str, int], str] = {}
    fastest: dict[tuple[object, ...], str] = {}
    for stage in range(config.pp):
        stages = plan.stages_of(stage)
        rows = ReplicaRows.of(plan.fleet, plan_costs.pipeline_rank_devices(plan, stage))
        pattern = rows.pattern(plan.fleet), config.zero_of(stage)
        layers, ends = sum(plan.stages[stage].layers for stage in stages), plan.ends(stages)
        own = plan.config_of(stages)
        degrees = own.recomputing("none")
        costs = _costs_of(plan.fleet, degrees, _Alike(rows, pattern))
        stage_costs_here = stage_costs.StageCosts(plan.workload_of(stages), own, costs)
        for kind, degree in (("tp", own.tp), ("dp", own.dp_cp)):
            if degree > 1:
                key = kind, pattern, layers, ends
                if key not in fastest:
                    fastest[key] = stage_costs_here.collective(kind, layers, *ends)
                chosen[kind, stage] = fastest[key]

    def with_choice(group: Group) -> Group:
        name = chosen.get((group.kind, config.coordinates(group.ranks[0])[2]))
        return group if name is None else replace(group, collective=name)

    return plan.annotated(groups=tuple(with_choice(group) for group in plan.groups))
