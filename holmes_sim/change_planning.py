"""Plans changed topologies in the processes of this machine, each from a plan to start with, until a common deadline.

Shares of the time are equal at first, because nobody knows how long a search takes. Where searches end before their shares, the
time that they leave goes to those that their shares ended: these search again, each from the plan that it found."""

from __future__ import annotations

import math
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
from planner.search.budgets import Budgets
from sim.errors import HolmesError
from sim.hardware.topology import Topology
from sim.plan.plan import Plan
from sim.units import Seconds

LATE: Seconds = 2.0
"""Seconds before the deadline at which searches end, for what follows: a last simulation, bounds, and the end of the processes,
which took 1.5 s where it was measured. A larger value leaves less time to search."""
LONGER = 1.5
"""Least time of a second search, in times of the first. Guess: one repeats most of the work of the first, though it begins with
its plan. A larger value leaves more time unused."""


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
    """What was found of the plan of a changed topology, with its proven gap; or the `reason` why there is none.

    `plan`: the exact plan of a search that its share of the time ended, which took `seconds`; None where more time is of no
    use."""

    index: int
    found: PlanNumbers | None = None
    reason: str = ""
    plan: Plan | None = None
    seconds: Seconds = 0.0


def answers(tasks: Sequence[Task], deadline: float, least: Seconds) -> Generator[Answer]:
    """The answers, in the order they finish; a later one of the same task is no worse.

    A search has an equal share of the time that is left when it begins, but no less than `least`; tasks for which the time does
    not suffice are left out. Then those searches that their share ended are repeated, the largest gap first, where each has
    `LONGER` times its share. Closing the generator stops the work. Raises HolmesError if a process is killed."""
    due, cut = deadline - LATE, list[Answer]()
    try:
        for answer in pooled(_answer, _shared(tasks, due, least), len(tasks)):
            cut += [answer] if answer.plan is not None else []
            yield answer
        cut.sort(key=lambda answer: -_gap(answer))
        given, first = {task.index: task for task in tasks}, {answer.index: answer for answer in cut}
        again = [replace(given[answer.index], start=answer.plan) for answer in cut]
        longer = max((LONGER * answer.seconds for answer in cut), default=0.0)
        for answer in pooled(_answer, _shared(again, due, max(least, longer)), len(again)):
            yield _better(first[answer.index], answer)
    except BrokenProcessPool:
        raise HolmesError("a process that planned a change was killed; it may have run out of memory") from None


def _gap(answer: Answer) -> float:
    """The proven gap of the plan of an answer; 1 where none is proved."""
    return 1.0 if answer.found is None or answer.found.gap is None else answer.found.gap


def _better(first: Answer, second: Answer) -> Answer:
    """The answer of two searches for the same task: the faster plan, with the lower bound that is the greater one."""
    if first.found is None or second.found is None:
        return first if second.found is None else second
    fastest = max(first.found, second.found, key=lambda one: one.speed)
    most = min(
        one.speed / (1 - one.gap) if one.gap is not None and one.gap < 1 else math.inf for one in (first.found, second.found)
    )
    return replace(second, found=replace(fastest, gap=max(1 - fastest.speed / most, 0.0)))


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
    begun = time.monotonic()
    limit = max(min(task.share, task.due - begun), 0.0)
    try:
        numbers, cut = _found(task, limit)
        return Answer(task.index, numbers, plan=cut, seconds=time.monotonic() - begun)
    except HolmesError as error:
        return Answer(task.index, reason="; ".join(str(error).splitlines()))
    except Exception as error:  # the other changes continue; the row says what happened
        return Answer(task.index, reason=f"{type(error).__name__}: {error}")


def _found(task: Task, limit: Seconds) -> tuple[PlanNumbers, Plan | None]:
    """The numbers of the best plan that a search of some seconds finds, and the plan if the limit ended the search before its
    gap was small. Raises HolmesError where there is none."""
    if task.sync != EXACT:
        return plan_numbers.of_answer(islands.search(task.topology, None, task.sync, None, limit, task.target)), None
    request = requirements.request(task.topology, commands.workload_of(task.topology), time_limit=limit, target=task.target)
    plan = api.plan(request, api.DEFAULT, PlanningContext(request, start=task.start, punctual=True))
    proof = plan.certificate
    is_cut = proof is not None and proof.time_limit_reached and proof.gap > Budgets().target_gap
    return plan_numbers.of_plan(plan), plan if is_cut else None
