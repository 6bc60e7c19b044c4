"""A stage programme of two classes, with one step: the variables of which are set by hand in tests."""

from __future__ import annotations

import math

from planner.costs.context import PlanningContext
from planner.costs.node_classes import NodeClass, node_classes
from planner.models.pipeline_constraints import keep_stages, require_pipeline
from planner.models.solver import Programme, Solution
from planner.models.stage_variables import StageVariables, stage_sizes
from planner.request import Request
from planner.space.shape import Shape
from planner.time_limit import TimeLimit
from tests.planner.builders import Stages

NODES = 1_000

NEVER = 1e9


def variables(question: Request, shape: Shape, cutoff: float = NEVER) -> tuple[PlanningContext, StageVariables]:
    """The variables of the stage programme for the classes in the order of the topology."""
    context = PlanningContext(question)
    order: tuple[NodeClass, ...] = tuple(node_classes(context, shape))
    return context, StageVariables(order, stage_sizes(order, cutoff), cutoff)


def fix(stages: StageVariables, pipeline: Stages) -> None:
    """Require a pipeline: its first, last, border and other middle stages."""
    index = [stages.names.index(name) for name, _ in pipeline]
    chosen = {"first": [(index[0], pipeline[0][1])], "last": [(index[-1], pipeline[-1][1])], "border": [], "middle": []}
    for stage in range(1, len(pipeline) - 1):
        kind = "border" if index[stage] != index[stage + 1] else "middle"
        chosen[kind].append((index[stage], pipeline[stage][1]))
    groups = {"first": stages.first, "last": stages.last, "border": stages.border, "middle": stages.middle}
    for kind, group in groups.items():
        for key, variable in group.items():
            stages.programme.require(f"fixed_{kind}{key}", variable + 0 == chosen[kind].count(key))
    assert all(key in groups[kind] for kind, keys in chosen.items() for key in keys), "no such size"


def accepts(
    question: Request, shape: Shape, pipeline: Stages, pp: int | None = None, kept: tuple[tuple[int, str], ...] = ()
) -> bool:
    """Whether the constraints of a pipeline, of pp stages if given, with stages `kept` on clusters, hold for a given one."""
    _, stages = variables(question, shape)
    require_pipeline(stages, (pp or 1, pp))
    keep_stages(stages, kept)
    try:
        fix(stages, pipeline)
    except AssertionError:
        return False
    return solved(stages.programme) is not None


def solved(programme: Programme) -> Solution | None:
    """The solution of a programme, in at most 1,000 nodes and without a time limit."""
    return programme.solve(NODES, TimeLimit(math.inf))
