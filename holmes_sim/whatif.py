"""What-if analysis: rank changes of a topology or its workload by their gain in tokens/s.

First the present plan is made. Then every change gets an estimated gain, the larger of two numbers: the improvement of the
relaxed bound of the planner (`planner.bounds.relaxation.relaxed_bound`), which accounts for devices, memory and work, but not
for links; and the improvement of the present plan when it is simulated on the changed topology, which accounts for links, but
not for devices that the present plan does not use. As far as the time limit allows, changes are replanned, the largest estimate
first; those for which the present plan does not exist (it does not fit, or its replicas cannot divide the batch) come before
all others. Time that is left then goes to the searches that their shares ended (`holmes_sim.change_planning`). The search for a
change starts from the present plan, so its result is not slower (`PlanningContext.start`).
With a sync strategy between islands, the present plan on a changed topology is the best of all that were found today, with its
strategy chosen anew (`holmes_sim.present_plans`), and speed is effective tokens/s (`holmes_sim.plan_numbers`).
`holmes_sim.outcomes` says what the result of a change is. Changes that give equal fleets (`holmes_sim.equal_fleets`), such as a
node more at either of two equal sites, are one search with one result.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from holmes_sim import change_planning, changes, commands, equal_fleets, frames, plan_numbers, requirements, targets
from holmes_sim.change_planning import Answer, Task
from holmes_sim.changes import Change
from holmes_sim.outcomes import Outcome, added_rent, outcome, with_smaller_sizes
from holmes_sim.plan_numbers import PlanNumbers
from holmes_sim.present_plans import PresentPlan, Simulated, present_plan
from planner.bounds.relaxation import relaxed_bound
from planner.costs.context import PlanningContext
from planner.islands.allowed_sync import EXACT
from planner.islands.search import SyncAnswer
from planner.request import Request
from sim.errors import HolmesError, Infeasible
from sim.hardware.topology import Topology
from sim.plan.islands import IslandsPlan
from sim.plan.plan import Plan
from sim.units import Seconds

if TYPE_CHECKING:
    import pandas as pd

FORMAT = "holmes-sim/what-if/1"
PRESENT_SHARE = 0.25
"""Fraction of the time limit for planning the unchanged topology. Guess; up to twice as much under short limits."""
BOUND_SHARE, SIMULATION_SHARE = 0.2, 0.5
"""Fractions of the time that is left for relaxed bounds, and then for simulations of the present plan. Guesses. A change
without a bound or simulation has no estimated gain; with so many changes there is hardly time to replan it either."""
MIN_PLANNING: Seconds = 5.0
"""Least time to replan one change under a long time limit. Guess; if time is short, fewer changes are replanned."""
MIN_SHARE = 0.2
"""Least time to replan one change, as a fraction of a short time limit. Guess; a smaller one starts searches that find
little."""
SIMULATIONS = 4
"""Least time to replan one change, in simulations of the present plan. Guess: a search simulates the present plan and a few
more."""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The present plan and the results of all changes, the largest gain first, changes without a plan last.

    `sync`: the allowed sync strategies. `answer`: the search for islands that the present plan is from, if it is from one."""

    plan: Plan | IslandsPlan
    outcomes: tuple[Outcome, ...]
    seconds: Seconds
    interrupted: bool = False
    sync: str = EXACT
    answer: SyncAnswer | None = None

    @property
    def base(self) -> PlanNumbers:
        """The numbers of the present plan."""
        if self.answer is not None:
            return plan_numbers.of_answer(self.answer)
        assert isinstance(self.plan, Plan)
        return plan_numbers.of_plan(self.plan)

    @property
    def gap(self) -> float:
        """Proven gap of the present plan: a gain smaller than this may be had without a change."""
        return self.base.gap or 0.0

    @property
    def frame(self) -> pd.DataFrame:
        """Data frame with one row per change, the best first. `cost_usd_per_h` is the added rent; `gain` 0.1 means 10% more."""
        found = frames.table([outcome.facts(self.gap) for outcome in self.outcomes])
        found = found.drop(columns=[] if self.answer else [*plan_numbers.SYNC_FACTS])
        return found.drop(columns="edits").rename(columns={"cost": "cost_usd_per_h"})

    def __repr__(self) -> str:
        where, found = self.plan.topology.name, [outcome for outcome in self.outcomes if outcome.gain is not None]
        text = f"{where}: {self.base.tokens_per_s:,.0f} tokens/s, {len(self.outcomes)} changes"
        return f"{text}; the best: {found[0].change.name}, {found[0].gain:+.1%}" if found else f"{text}, none with a plan"

    def _repr_html_(self) -> str:
        return frames.html(repr(self), self.frame)

    def facts(self) -> dict[str, Any]:
        """The result as plain data (format holmes-sim/what-if/1), as `holmes-sim what-if --json` prints it."""
        base = {**self.base.facts(), "gap": self.gap}
        rows = [outcome.facts(self.gap) for outcome in self.outcomes]
        return {"format": FORMAT, "base": base, "rows": rows, "interrupted": self.interrupted}


def what_if(
    where: Topology,
    time_limit: Seconds = 100.0,
    progress: Callable[[str], None] = lambda text: None,
    menu: tuple[Change, ...] | None = None,
    target: str = targets.ANY,
    sync: str = EXACT,
) -> WhatIf:
    """Rank changes of a topology with a workload by their gain: those of `menu`, or the default menu (`changes.menu`) if None.

    `time_limit` is in seconds. `target` is a launch target that must be able to run all plans. `sync`: the allowed sync
    strategies between islands, as `plan --sync`. Required days do not limit the plans: a change may be wanted to reach these.
    Raises TopologyError; Infeasible if the unchanged topology has no plan; HolmesError if the menu is empty, or for sync
    strategies that are unknown."""
    begun = time.monotonic()
    if menu == ():
        raise HolmesError("menu: at least one change is needed; leave out the menu to use the default one")
    progress("the present plan")
    first_s = max(PRESENT_SHARE * time_limit, min(MIN_PLANNING, 2 * PRESENT_SHARE * time_limit))
    commands.workload_of(where)
    where = requirements.applied(requirements.without(where, "days"))
    request, now = present_plan(where, first_s, target, sync, progress)
    candidates = changes.menu(where) if menu is None else menu
    progress("estimates of the changes")
    changed, end = [change.made(where) for change in candidates], begun + time_limit
    costs = [added_rent(change, where, topology) for change, topology in zip(candidates, changed, strict=True)]
    least = max(min(now.SEARCHES * MIN_PLANNING, MIN_SHARE * time_limit), SIMULATIONS * now.simulation_s)
    gains = _bound_gains(request, changed, end, least)
    simulated = _all_simulated(now, changed, gains, end, least)
    estimates = [_estimate(now, gain, index in simulated, simulated.get(index)) for index, gain in enumerate(gains)]
    order = sorted(range(len(changed)), key=lambda index: -estimates[index])
    twins = _twins(changed, simulated)
    starts = {index: one.start for index, one in simulated.items() if one is not None}
    searched = dict.fromkeys(twins[index] for index in order)
    tasks = [Task(index, changed[index], starts.get(index), target=target, sync=sync) for index in searched]
    answers, interrupted = _planned(tasks, end, least, progress)
    found = [
        outcome(now.numbers, one, costs[index], _numbers(simulated.get(twin)), answers.get(twin))
        for index, (one, twin) in enumerate(zip(candidates, twins, strict=True))
    ]
    ranked = sorted(with_smaller_sizes(found), key=_rank, reverse=True)
    return WhatIf(now.plan, tuple(ranked), time.monotonic() - begun, interrupted, sync, now.answer)


def _twins(changed: Sequence[Topology], simulated: Mapping[int, Simulated | None]) -> list[int]:
    """For each change, that of equal fleets on which the present plan is fastest: it stands for the others, so that equal
    changes have equal results, and its search begins with that plan."""
    speeds = {index: one.numbers.speed for index, one in simulated.items() if one is not None}
    fastest = sorted(range(len(changed)), key=lambda index: -speeds.get(index, 0.0))
    firsts = equal_fleets.representatives([changed[index] for index in fastest])
    return [twin for _, twin in sorted(zip(fastest, (fastest[first] for first in firsts), strict=True))]


def _is_time(seconds: Seconds, least: Seconds) -> bool:
    """Whether a change can be replanned in some seconds, if one takes `least`."""
    return seconds - change_planning.LATE >= least


def _bound_gains(request: Request, changed: Sequence[Topology], end: float, least: Seconds) -> list[float]:
    """Gain of the relaxed bound of each change; 0 for those that are left when `BOUND_SHARE` of the time until `end` is over,
    and for all where no change can be replanned."""
    begun, gains = time.monotonic(), [0.0] * len(changed)
    if not _is_time(end - begun, least):
        return gains
    present = _relaxed(replace(request, time_limit=math.inf))
    for index, topology in enumerate(changed):
        if time.monotonic() >= begun + BOUND_SHARE * (end - begun):
            break
        workload = commands.workload_of(topology)
        with suppress(Infeasible):  # such as a sequence that the target cannot express; its search says why
            gains[index] = present / _relaxed(replace(request, topology=topology, workload=workload, time_limit=math.inf)) - 1
    return gains


def _all_simulated(
    now: PresentPlan, changed: Sequence[Topology], gains: Sequence[float], end: float, least: Seconds
) -> dict[int, Simulated | None]:
    """The present plan on changed topologies, by index of the change; None where it does not exist.

    The changes with the largest gain of the bound come first. Stops when `SIMULATION_SHARE` of the time until `end` is over,
    earlier where the rest would be too short to replan, and at `end` where there is no time to replan. A change whose
    simulation would end later is left out."""
    found: dict[int, Simulated | None] = {}
    now_s, slowest, batch = time.monotonic(), now.simulation_s, now.plan.workload.global_batch_size
    due = min(now_s + SIMULATION_SHARE * (end - now_s), end - change_planning.LATE - least)
    last = due if due > now_s else end
    for index in sorted(range(len(changed)), key=lambda index: -gains[index]):
        begun, workload = time.monotonic(), commands.workload_of(changed[index])
        share = max(workload.global_batch_size / batch, 1.0)
        if begun + share * slowest < last:
            found[index] = now.on(changed[index])
            slowest = max(slowest, (time.monotonic() - begun) / share)
    return found


def _relaxed(request: Request) -> Seconds:
    """Relaxed lower bound of the planner, in seconds per token."""
    return relaxed_bound(request, PlanningContext(request), usual=True) / request.workload.tokens


def _estimate(now: PresentPlan, bound_gain: float, is_simulated: bool, simulated: Simulated | None) -> float:
    """Estimated speed after a change: the larger of the gain of the bound and the simulated present plan.

    Infinite if the present plan cannot be simulated on it."""
    if is_simulated and simulated is None:
        return math.inf
    speed = now.numbers.speed if simulated is None else simulated.numbers.speed
    return max(now.numbers.speed * (1 + bound_gain), speed)


def _planned(
    tasks: Sequence[Task], end: float, least: Seconds, progress: Callable[[str], None]
) -> tuple[dict[int, Answer], bool]:
    """(answers by index of the change, whether Ctrl-C ended the work)."""
    found: dict[int, Answer] = {}
    if not _is_time(end - time.monotonic(), least):
        return found, False
    progress(f"0 of {len(tasks)} changes")
    try:
        with closing(change_planning.answers(tasks, end, least)) as finished:
            for answer in finished:
                again = answer.index in found
                found[answer.index] = answer
                progress("searches that had too little time" if again else f"{len(found)} of {len(tasks)} changes")
    except KeyboardInterrupt:
        return found, True
    return found, False


def _numbers(simulated: Simulated | None) -> PlanNumbers | None:
    return None if simulated is None else simulated.numbers


def _rank(one: Outcome) -> tuple[bool, bool, float]:
    """What orders outcomes, the best last: those without a plan first, then those whose speed cannot be compared."""
    return one.found is not None, one.gain is not None, one.gain or 0.0
