"""Plans changed topologies in the processes of this machine, each from a plan to start with, until a common deadline."""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace

from holmes_sim import commands, islands, plan_numbers, requirements, targets
from holmes_sim.plan_numbers import PlanNumbers
from holmes_sim.sweeping.engines.local import pooled
from planner import api
from planner.costs.context import PlanningContext
from planner.islands.allowed_sync import EXACT
from sim.errors import HolmesError
from sim.hardware.topology import Topology
from sim.plan.plan import Plan
from sim.units import Seconds

LATE: Seconds = 2.0
"""Seconds before the deadline at which searches end, for what follows: a last simulation, bounds, and the end of the processes,
which took 1.5 s where it was measured. A larger value leaves less time to search."""


@dataclass(frozen=True, slots=True)
class Task:
    """A changed topology to plan. `start` is a plan of it to begin with; the search ends after `share` seconds, and `due`
    (`time.monotonic`, which all processes of a machine share) at the latest. `target`: a launch target that must be able to
    run the plan. `sync`: the allowed sync strategies, as `plan --sync`."""

    index: int
    topology: Topology
    start: Plan | None
    share: Seconds = 0.0
    due: float = 0.0
    target: str = targets.ANY
    sync: str = EXACT


@dataclass(frozen=True, slots=True)
class Answer:
    """What was found of the plan of a changed topology, with its proven gap; or the `reason` why there is none."""

    index: int
    found: PlanNumbers | None = None
    reason: str = ""


def answers(tasks: Sequence[Task], deadline: float, least: Seconds) -> Generator[Answer]:
    """The answers, in the order they finish.

    A search has an equal share of the time that is left when it begins, but no less than `least`; tasks for which the time does
    not suffice are left out. Closing the generator stops the work. Raises HolmesError if a process is killed."""
    try:
        yield from pooled(_answer, _shared(tasks, deadline - LATE, least), len(tasks))
    except BrokenProcessPool:
        raise HolmesError("a process that planned a change was killed; it may have run out of memory") from None


def _shared(tasks: Sequence[Task], due: float, least: Seconds) -> Iterator[Task]:
    """The tasks with their share of the time, while there is time. One is taken whenever a process is free for it."""
    processes = min(os.cpu_count() or 1, len(tasks))
    for number, task in enumerate(tasks):
        left = due - time.monotonic()
        if left < least:
            return
        rounds = -(-(len(tasks) - number) // processes)
        yield replace(task, share=max(left / rounds, least), due=due)


def _answer(task: Task) -> Answer:
    """The answer to a task; an error becomes its reason."""
    limit = max(min(task.share, task.due - time.monotonic()), 0.0)
    try:
        return Answer(task.index, _found(task, limit))
    except HolmesError as error:
        return Answer(task.index, reason="; ".join(str(error).splitlines()))
    except Exception as error:  # the other changes continue; the row says what happened
        return Answer(task.index, reason=f"{type(error).__name__}: {error}")


def _found(task: Task, limit: Seconds) -> PlanNumbers:
    """The numbers of the best plan that a search of some seconds finds. Raises HolmesError where there is none."""
    if task.sync != EXACT:
        return plan_numbers.of_answer(islands.search(task.topology, None, task.sync, None, limit, task.target))
    request = requirements.request(task.topology, commands.workload_of(task.topology), time_limit=limit, target=task.target)
    return plan_numbers.of_plan(api.plan(request, api.DEFAULT, PlanningContext(request, start=task.start, punctual=True)))
