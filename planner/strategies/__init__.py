"""Planning strategies over the same simulator: one file, one strategy.

A module defines `plan(request, context) -> Plan`, which returns the best plan it finds, with the prediction of its simulation.
The folder is the registry."""

from __future__ import annotations

from typing import Protocol

from planner.costs.context import PlanningContext
from planner.request import Request
from sim.plan.plan import Plan
from sim.registry import Registry


class Strategy(Protocol):
    """Interface of every module of this folder."""

    def plan(self, request: Request, context: PlanningContext) -> Plan:
        """The best plan of this strategy, with its prediction. Raises Infeasible where there is none."""
        ...


REGISTRY: Registry[Strategy] = Registry(__name__, "strategy")


def names() -> tuple[str, ...]:
    """Names of all strategies, sorted."""
    return REGISTRY.names


def get(name: str) -> Strategy:
    """The strategy of a name; raises OptionError for an unknown one."""
    return REGISTRY.get(name)
