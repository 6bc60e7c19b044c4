"""Planners over the same simulator: one file, one strategy.

A module offers `plan(request, context) -> Plan`: the best plan it knows, simulated by the engine, so that its prediction
stands in it. The folder is the registry."""

from __future__ import annotations

import functools
from importlib import import_module
from pkgutil import iter_modules
from typing import Protocol

from planner.costs.context import PlanningContext
from planner.request import Request
from sim.errors import PlanError
from sim.plan.plan import Plan


class Strategy(Protocol):
    """What every module of this folder offers."""

    def plan(self, request: Request, context: PlanningContext) -> Plan:
        """The best plan this strategy knows, with its prediction. Raises Infeasible where there is none."""
        ...


@functools.cache
def names() -> tuple[str, ...]:
    """Names of all strategies, sorted."""
    return tuple(sorted(module.name for module in iter_modules(__path__)))


def get(name: str) -> Strategy:
    """The strategy of a name; raises PlanError."""
    if name not in names():
        raise PlanError(f"strategy {name!r} is unknown; known: {', '.join(names())}")
    return import_module(f"{__name__}.{name}")
