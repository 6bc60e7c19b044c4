"""The plan of today, exact or of islands, and the same plan on a changed topology: what changes of a fleet are measured by."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from holmes_sim import commands, islands, plan_numbers, requirements
from holmes_sim.islands_targets import launch_fault
from holmes_sim.plan_numbers import PlanNumbers
from planner import api
from planner.costs.context import PlanningContext
from planner.islands.allowed_sync import EXACT, parse
from planner.islands.on_changed import on_changed
from planner.islands.search import SyncAnswer, plan_with_sync
from planner.replan.rebasing import rebased
from planner.request import Request
from sim.hardware.topology import Topology
from sim.plan.islands import IslandsPlan
from sim.plan.plan import Plan
from sim.units import Seconds


@dataclass(frozen=True, slots=True)
class Simulated:
    """Numbers of the plan of today on a changed topology; `start`: the plan that a search there can begin with."""

    numbers: PlanNumbers
    start: Plan | None


class PresentPlan(Protocol):
    """The plan of today. SEARCHES: how many searches one more plan takes. simulation_s: seconds of a simulation of it. answer:
    the search for islands that it is from, if it is from one."""

    SEARCHES: int
    numbers: PlanNumbers
    simulation_s: Seconds
    answer: SyncAnswer | None

    @property
    def plan(self) -> Plan | IslandsPlan:
        """The plan."""

    def on(self, topology: Topology) -> Simulated | None:
        """The plan on a changed topology; None where it does not exist there, or where a limit refuses it."""


class ExactPlan:
    """The exact plan of today."""

    SEARCHES = 1

    def __init__(self, request: Request):
        context = PlanningContext(request, punctual=True)
        self._request, self._plan = request, api.plan(request, api.DEFAULT, context)
        self.numbers, self.simulation_s = plan_numbers.of_plan(self._plan), context.timelines.wall_s
        self.answer: SyncAnswer | None = None

    @property
    def plan(self) -> Plan:
        """The plan."""
        return self._plan

    def on(self, topology: Topology) -> Simulated | None:
        """The plan on a changed topology, the same layout on the same devices."""
        found = rebased(self._plan, topology, commands.workload_of(topology))
        if found is None or self._request.refuses(found):
            return None
        return Simulated(replace(plan_numbers.of_plan(found), gap=None), found)


class PlanWithSync:
    """The plan of today with one of the allowed sync strategies: of islands, or exact."""

    SEARCHES = 3
    """The exact plan, one island alone, and islands."""

    def __init__(self, request: Request, sync: str, target: str, progress: Callable[[str], None]):
        self._request, self._allowed = request, parse(sync)
        self._fault = launch_fault(request.topology, target)
        self._found = plan_with_sync(request, self._allowed, progress, self._fault)
        self.answer: SyncAnswer | None = self._found
        self.numbers = plan_numbers.of_answer(self._found)
        begun = time.monotonic()
        self.on(request.topology)
        self.simulation_s = time.monotonic() - begun

    @property
    def plan(self) -> Plan | IslandsPlan:
        """The plan."""
        return self._found.best.plan

    def on(self, topology: Topology) -> Simulated | None:
        """The best of the plans that were found today on a changed topology: the same layouts, the sync strategy anew."""
        there = replace(self._request, topology=topology, workload=commands.workload_of(topology))
        row = on_changed(self._found, self._allowed, there, self._fault)
        return None if row is None else Simulated(plan_numbers.of_row(row), None)


def present_plan(
    where: Topology, time_limit: Seconds, target: str, sync: str, progress: Callable[[str], None]
) -> tuple[Request, PresentPlan]:
    """(planning request, its plan) of a topology with a workload and allowed sync strategies.

    Raises Infeasible, OptionError."""
    workload = commands.workload_of(where)
    if sync == EXACT:
        request = requirements.request(where, workload, time_limit=time_limit, target=target)
        return request, ExactPlan(request)
    request = islands.request_of(where, workload, None, time_limit, target)
    return request, PlanWithSync(request, sync, target, progress)
