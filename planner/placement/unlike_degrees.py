"""The plan of a pipeline whose stages have shapes of their own (`planner.space.unlike_degrees`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from planner.placement.ranks import launched, stages_of
from planner.placement.recomputation import recomputing
from planner.request import Request
from planner.space.shape import Shape
from planner.space.shapes import slot
from sim import __version__
from sim.hardware.cluster import Device
from sim.plan.groups import groups_of
from sim.plan.parallel_config import BLOCK, ParallelConfig
from sim.plan.plan import MadeBy, Plan


def build_unlike(request: Request, stages: Sequence[tuple[str, Shape, int]], strategy: str) -> Plan:
    """The plan of a pipeline given as (cluster, shape of the cluster's stages, layers) of every stage.

    Stages take the next free slots of their cluster. Raises NoRoute, PlanError; NotDefined, also where the target or the limits
    of the request refuse the plan."""
    used, devices = dict[str, int](), list[Device]()
    for name, shape, _ in stages:
        cluster, first = request.topology.fleet.cluster(name), used.get(name, 0)
        used[name] = first + shape.slots
        for index in range(first, first + shape.slots):
            devices += slot(cluster, shape.tp, index)
    config = _config(request, [shape for _, shape, _ in stages])
    plan = Plan(
        topology=request.topology,
        workload=request.workload,
        config=config,
        stages=stages_of(tuple(layers for *_, layers in stages), config),
        placement=tuple(devices),
        groups=groups_of(request.topology.fleet, config, tuple(devices)),
        made_by=MadeBy(strategy, __version__),
    )
    return launched(request, recomputing(plan) if stages[0][1].recompute == BLOCK else (plan,))


def _config(request: Request, shapes: Sequence[Shape]) -> ParallelConfig:
    """The configuration of stages of these shapes: facts are those of the widest, microbatches those of the fewest replicas."""
    widest, fewest = max(shapes, key=lambda one: (one.tp, one.ep)), min(shapes, key=lambda one: one.dp)
    degrees = "tp", "dp", "cp", "ep", "etp"
    values: dict[str, tuple[Any, ...]] = {name: tuple(getattr(one, name) for one in shapes) for name in degrees}
    if any(values["etp"]):
        values["etp"] = tuple(one.etp or one.tp for one in shapes)
    unlike: dict[str, Any] = {f"stage_{name}": every for name, every in values.items() if len(set(every)) > 1}
    unlike |= {"dp": fewest.dp, "cp": min(values["cp"]), "ep": values["ep"][0], "etp": values["etp"][0]}
    return replace(
        widest.config(request.workload, len(shapes)),
        microbatch_size=fewest.microbatch_size,
        num_microbatches=fewest.microbatches_of_replicas(request.workload),
        **unlike,
    )
