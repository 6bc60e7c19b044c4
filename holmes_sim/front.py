"""The plans between which one must choose: faster ones that cost more, cheaper ones that take longer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from holmes_sim import commands
from planner import pareto_front
from planner.costs.context import PlanningContext
from planner.request import Request, Wishes
from sim.hardware.topology import Topology
from sim.plan.plan import Plan
from sim.plan.prediction import OBJECTIVES, Prediction
from sim.results import cost_energy
from sim.workload.workload import Workload


@dataclass(frozen=True, slots=True)
class Front:
    """Plans that no other played one beats in all objectives at once, the fastest first; the others that were played."""

    request: Request
    objectives: tuple[str, ...]
    plans: tuple[Plan, ...]
    others: tuple[Plan, ...]
    interrupted: bool = False

    def facts(self) -> dict[str, Any]:
        """The front as plain data; devices by cluster are those of whole nodes, which are paid for."""
        rows = [_row_facts(plan) for plan in self.plans]
        return {"objectives": list(self.objectives), "rows": rows, "interrupted": self.interrupted}


def _row_facts(plan: Plan) -> dict[str, Any]:
    numbers = {key: getattr(prediction(plan), key) for key in (*OBJECTIVES.values(), "samples_per_s")}
    config = asdict(plan.config) | {"num_microbatches": list(plan.config.num_microbatches)}
    return {**numbers, "devices": {cluster.name: count for cluster, count in cost_energy.occupied(plan)}, "config": config}


def prediction(plan: Plan) -> Prediction:
    """What a played plan promises."""
    assert plan.prediction is not None
    return plan.prediction


def pareto(
    where: Topology,
    workload: Workload | None = None,
    wishes: Wishes | None = None,
    time_limit: float = 50.0,
    progress: Callable[[str], None] = lambda text: None,
) -> Front:
    """Plans that trade step time for cost and energy per token. Raises Infeasible, PlanError, TopologyError.

    Cost is left out where a device has no price, energy where one has no watts; PlanError where neither is left.
    """
    request = Request(where, workload or commands.workload_of(where), wishes or Wishes(), time_limit)
    context = PlanningContext(request, progress)
    objectives, plans, others = pareto_front.pareto(request, context)
    return Front(request, objectives, plans, others, context.interrupted)
