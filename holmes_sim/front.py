"""Pareto front of step time, cost and energy per token."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Unpack

from holmes_sim import commands, requirements, targets
from holmes_sim.pins import Pins, pinned
from planner import pareto_front
from planner.costs.context import PlanningContext
from planner.request import Request, Wishes
from sim.formats.config_facts import config_facts
from sim.hardware.topology import Topology
from sim.plan.plan import Plan
from sim.plan.prediction import OBJECTIVES, Prediction
from sim.results import cost_energy
from sim.workload.workload import Workload

FORMAT = "holmes-sim/pareto/1"


@dataclass(frozen=True, slots=True)
class Front:
    """Simulated plans that are not dominated by another one, the fastest first, and the dominated ones (`others`)."""

    request: Request
    objectives: tuple[str, ...]
    plans: tuple[Plan, ...]
    others: tuple[Plan, ...]
    interrupted: bool = False

    def facts(self) -> dict[str, Any]:
        """The front as plain data (format holmes-sim/pareto/1).

        `devices` counts all devices of occupied nodes by cluster: whole nodes are paid for."""
        rows = [_row_facts(plan) for plan in self.plans]
        return {"format": FORMAT, "objectives": list(self.objectives), "rows": rows, "interrupted": self.interrupted}


def _row_facts(plan: Plan) -> dict[str, Any]:
    numbers = {key: getattr(prediction(plan), key) for key in (*OBJECTIVES.values(), "samples_per_s")}
    config = config_facts(plan.config)
    return {**numbers, "devices": {cluster.name: count for cluster, count in cost_energy.occupied(plan)}, "config": config}


def prediction(plan: Plan) -> Prediction:
    """The prediction of a simulated plan."""
    assert plan.prediction is not None
    return plan.prediction


def pareto(
    where: Topology,
    workload: Workload | None = None,
    wishes: Wishes | None = None,
    time_limit: float = 50.0,
    progress: Callable[[str], None] = lambda text: None,
    target: str = targets.ANY,
    **pins: Unpack[Pins],
) -> Front:
    """Find plans that trade step time for cost and energy per token. Raises Infeasible, OptionError, TopologyError.

    Cost is left out if a device has no price, energy if a device has no watts; raises OptionError if both are left out.
    `target` is a launch target that must be able to run the plans; `pins` fix dimensions, such as tp=2.
    """
    wishes = pinned("pareto", wishes, pins)
    request = requirements.request(where, workload or commands.workload_of(where), wishes, time_limit, target)
    context = PlanningContext(request, progress)
    objectives, plans, others = pareto_front.pareto(request, context)
    return Front(request, objectives, plans, others, context.interrupted)
