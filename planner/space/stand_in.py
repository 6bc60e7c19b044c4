"""Models of equal layers that stand for models whose layers differ, in the search; plans of them become plans of the model.

The planner searches models of equal layers. For another one it plans a model all of whose layers are of the kind with most
parameters, so that memory suffices, with a layer more for each that predicts further tokens. The plan then gets the model's own
layers, and is simulated with them. There is no bound: none of a model of equal layers holds for it. What a launch target cannot
express is asked of the model itself, such as layers that predict further tokens in a pipeline."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace

from planner.request import Request
from planner.target import Target
from sim.errors import Infeasible, NotModelled, PlanError
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan, Stage
from sim.workload.model import Model
from sim.workload.workload import Workload

SHARE = 0.7
"""Share of the time limit for the searches, which prove nothing and mostly end sooner; the rest is for the search with the
model's own layers. Guess: a larger one leaves weaker bounds, a smaller one may leave no time for a first plan."""
RECOMPUTE = ("none", "full")
"""Recomputation that is tried: that of some layers of a stage is not modelled where layers differ."""


def check(workload: Workload) -> None:
    """Raise NotModelled for a model whose layers differ."""
    model = workload.model
    if not model.is_uniform:
        has = ", ".join(f"{key} {value}" for key, value in model.special.items() if "head_dim" not in key and "rank" not in key)
        raise NotModelled(
            f"model {model.name}: its layers differ ({has}); only `plan` and `compare` by step time take such models yet"
        )


def stand_ins(request: Request) -> tuple[Request, ...]:
    """The request with a model of equal layers, once for each recomputation that is tried, which share the time."""
    model = request.workload.model
    kind = max((kind for _, kind in model.kinds(0, model.layers)), key=lambda kind: kind.layer_parameters)
    workload = replace(request.workload, model=replace(kind, layers=model.layers + model.mtp_layers))
    ways = (request.wishes.recompute,) if request.wishes.recompute else RECOMPUTE
    return tuple(
        replace(
            request,
            topology=replace(request.topology, workload=workload),
            workload=workload,
            target=request.target and _asked_of(request.target, model),
            wishes=replace(request.wishes, recompute=way),
            time_limit=SHARE * request.time_limit / len(ways),
        )
        for way in ways
    )


@functools.lru_cache(maxsize=64)
def _asked_of(target: Target, model: Model) -> Target:
    """A target that says of layouts what it cannot express of a model, whatever model stands for it."""
    return replace(target, unsupported_layout=functools.partial(_unsupported, target, model))


def _unsupported(target: Target, model: Model, config: ParallelConfig, workload: Workload) -> Iterator[str]:
    return target.unsupported_layout(config, replace(workload, model=model))


def of_model(plan: Plan, request: Request) -> Plan:
    """A plan of a stand-in as a plan of the request's model, neither simulated nor proved.

    Raises Infeasible where the model's own layers cannot have the plan's degrees or stages."""
    layers = request.workload.model.layers
    stages = tuple(Stage(min(stage.first, layers), min(stage.past_last, layers), stage.head) for stage in plan.stages)
    topology = replace(plan.topology, workload=request.workload)
    try:
        return replace(plan, topology=topology, workload=request.workload, stages=stages, prediction=None, certificate=None)
    except PlanError as error:
        raise Infeasible(f"model {request.workload.model.name}: {error}") from None
