"""Parts of a search for tests: an incumbent without a time limit, and candidates."""

from __future__ import annotations

import math

from planner.costs.context import PlanningContext
from planner.costs.node_classes import node_classes
from planner.placement.ranks import build
from planner.placement.simulation import simulate_plan
from planner.request import Request
from planner.search.budgets import Budgets
from planner.search.candidates import Candidate, priced
from planner.search.evaluation import PipelineEvaluation
from planner.search.incumbent import Incumbent
from planner.space.shape import Shape
from planner.time_limit import TimeLimit
from sim.plan.plan import Plan
from tests.planner.builders import Stages


def incumbent(request: Request, budgets: Budgets | None = None, best: Plan | None = None) -> Incumbent:
    """An incumbent without a deadline."""
    return Incumbent(request, PlanningContext(request), budgets or Budgets(), TimeLimit(math.inf), best)


def simulated(request: Request, shape: Shape, *stages: tuple[str, int]) -> Plan:
    """The simulated plan of a pipeline."""
    return simulate_plan(build(request, shape, stages, "by hand"))


def evaluation(request: Request, shape: Shape) -> PipelineEvaluation:
    """The evaluation of pipelines over all classes, in the order of the topology."""
    context = PlanningContext(request)
    return PipelineEvaluation(context, shape, tuple(node_classes(context, shape)))


def candidate(context: PlanningContext, shape: Shape, stages: Stages, least: bool = False) -> Candidate:
    """The evaluated candidate of a pipeline; `least` as in `PipelineEvaluation`."""
    names = dict.fromkeys(name for name, _ in stages)
    classes = tuple(option for option in node_classes(context, shape) if option.cluster.name in names)
    index = {option.cluster.name: i for i, option in enumerate(classes)}
    (found,) = priced(context, shape, classes, [tuple((index[name], layers) for name, layers in stages)], 1, least)
    return found
