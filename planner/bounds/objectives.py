"""Objectives of a plan, which are step time, cost and energy per token (`sim.results.cost_energy`), and lower bounds on them.

The bounds hold for every plan. A step computes W = layers x microbatches units of work; a unit is one layer of one microbatch.
A replica of tp x cp devices on cluster c takes at least t_c seconds for one unit (t_c as in `planner.bounds.total_work`), so a
unit costs at least tp x cp x price_c x t_c. In these t_c seconds, each device computes for e_c seconds at its watts. Hence

    cost   >= W x min over c of (tp x cp x price_c x t_c)
    energy >= W x min over c of (tp x cp x watts_c x e_c)

The bound is the least value over all shapes (tp, cp, ep, microbatch size, recomputation). Waiting, gradient synchronisation and
embeddings are left out."""

from __future__ import annotations

import math
from collections.abc import Iterable

from planner.bounds.total_work import fewest_stages, work_bound
from planner.costs.context import PlanningContext
from planner.costs.mixed_stages import MixedStageCosts, mixed_costs
from planner.request import Request
from planner.space.device_slots import Run
from planner.space.shape import Shape, split_backward
from planner.space.shapes import searched, slots
from sim.errors import OptionError
from sim.hardware.cluster import Cluster
from sim.kernels import compute
from sim.plan.plan import Plan
from sim.plan.prediction import OBJECTIVES

NEEDS = {"cost": ("price", "price: 2.50 USD/h"), "energy": ("watts", "watts: 400 W")}
"""Objective -> (attribute of a device that it needs, how to write it in a topology)."""


def value(plan: Plan, objective: str) -> float:
    """The value of a simulated plan that the objective minimises: seconds of a step, USD or joules per token."""
    number: float | None = getattr(plan.prediction, OBJECTIVES[objective])
    assert number is not None
    return number


def known(request: Request) -> tuple[str, ...]:
    """Objectives whose attribute every usable device states; always includes step-time."""
    return tuple(objective for objective in OBJECTIVES if not _lacking(request, objective))


def check(request: Request, objective: str) -> None:
    """Raise OptionError for an unknown objective, or where a usable device does not state the attribute it needs."""
    if objective not in OBJECTIVES:
        raise OptionError(f"objective {objective!r} is unknown; known: {', '.join(OBJECTIVES)}")
    lacking = _lacking(request, objective)
    if lacking:
        fact, example = NEEDS[objective]
        devices = ", ".join(f"{cluster.node.device.name} of cluster {cluster.name}" for cluster in lacking)
        where = f"clusters.{lacking[0].name}.node.devices" + (".type" if objective == "energy" else "")
        raise OptionError(f"objective {objective}: no {fact} known of {devices}; give it in the topology, {where}.{example}")


def _lacking(request: Request, objective: str) -> list[Cluster]:
    if objective not in NEEDS:
        return []
    return [cluster for cluster in request.clusters() if getattr(cluster.node.device, NEEDS[objective][0]) is None]


def front(plans: Iterable[Plan], objectives: tuple[str, ...]) -> tuple[Plan, ...]:
    """The Pareto front: plans that no other plan dominates, sorted by the first objective; one of each group of equal plans."""
    rows: dict[tuple[float, ...], Plan] = {}
    for plan in plans:
        rows.setdefault(tuple(value(plan, objective) for objective in objectives), plan)
    return tuple(rows[row] for row in sorted(rows) if not any(dominates(other, row) for other in rows))


def dominates(better: tuple[float, ...], worse: tuple[float, ...]) -> bool:
    """Pareto dominance for minimisation: whether `better` is nowhere larger than `worse`, and somewhere smaller."""
    return better != worse and all(a <= b for a, b in zip(better, worse, strict=True))


def least(context: PlanningContext, objectives: tuple[str, ...]) -> tuple[float, ...]:
    """Lower bounds on the objectives of every plan of a request, infinite without any plan. Raises Infeasible for no shape."""
    request, seen, costs = context.request, set[Shape](), mixed_costs(context)
    best = dict.fromkeys(("cost", "energy"), math.inf)
    for shape in searched(request, across=True):
        one = split_backward(shape.one_mesh)
        if one in seen:
            continue
        seen.add(one)
        work = request.workload.global_batch_size / one.microbatch_size * request.workload.model.layers
        for cluster in request.clusters():
            if cluster.node.count >= one.tp and slots(cluster, one.tp) >= one.cp:
                usd, joules = _per_layer(costs, cluster, one)
                best["cost"] = min(best["cost"], work * usd / request.workload.tokens)
                best["energy"] = min(best["energy"], work * joules / request.workload.tokens)
    return tuple(work_bound(context) if objective == "step-time" else best[objective] for objective in objectives)


def _per_layer(costs: MixedStageCosts, cluster: Cluster, shape: Shape) -> tuple[float, float]:
    """(USD, joules) of one layer of one microbatch on a replica that never waits; 0 where its devices state no price or
    watts."""
    device, pp = cluster.node.device, fewest_stages(costs.context.request)
    _, seconds = costs.least_seconds(shape, Run(cluster, 0, slots(cluster, shape.tp)), (False, False), pp)
    busy = sum(compute.layer_seconds(device, costs.workload, costs.config(shape, pp)))
    devices = shape.tp * shape.cp
    return devices * seconds * (device.price or 0.0), devices * busy * (device.watts or 0.0)
