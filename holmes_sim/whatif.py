"""What-if analysis: rank changes of a topology or its workload by their gain in tokens/s.

Replanning every change may take longer than the time limit, so changes are replanned in the order of an estimated gain, the
larger of two numbers. The first is the improvement of the relaxed bound of the planner
(`planner.bounds.relaxation.relaxed_bound`), which accounts for devices, memory and work, but not for links. The second is the
improvement of the present plan when it is simulated on the changed topology, which accounts for links, but not for devices that
the present plan does not use. If the present plan cannot be simulated there, because it does not fit or its replicas cannot
divide the batch, the change is replanned before the others. If these simulations take half of the time limit (fleets with many
links), the remaining changes are ordered by the first number only. The result of a change is the faster of its new plan and the
present plan, by simulated step time.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from holmes_sim import changes, commands, frames
from holmes_sim.changes import Change
from holmes_sim.sweeping import worker
from holmes_sim.sweeping.sweep import sweep
from holmes_sim.sweeping.worker import Row
from planner import api
from planner.bounds.relaxation import relaxed_bound
from planner.costs.context import PlanningContext
from planner.placement import simulation
from planner.request import Request, Wishes
from sim import units
from sim.errors import HolmesError
from sim.hardware.topology import Topology
from sim.plan.plan import Plan
from sim.plan.prediction import Prediction
from sim.results import cost_energy
from sim.units import Seconds

if TYPE_CHECKING:
    import pandas as pd

PLANNED, PRESENT_PLAN = "planned", "simulated"
"""Values of `Outcome.how`: the change was replanned, or only the present plan was simulated on it."""
PRESENT_SHARE = 0.25
"""Fraction of the time limit for planning the unchanged topology. Guess."""
SIMULATION_SHARE = 0.5
"""Fraction of the time limit after which the present plan is not simulated on further changes. Guess. Changes of links that are
not simulated have no estimated gain, but with so many changes there is no time to replan them either."""
MIN_PLANNING: Seconds = 5.0
"""Minimum time limit to replan one change. Guess; if time is short, fewer changes are replanned, each with this limit."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a change: `tokens_per_s` and `step_s` of its plan, and its `gain` in tokens/s (0.1: 10% more than now).

    `usd_per_h` is the rent that the change adds (None if a price is missing). `how` is "planned" if the change was replanned,
    or "simulated" if only the present plan was simulated on it. `gap` is the proven gap to the best plan of a replanned
    change, else None. Without a plan the numbers are None and `reason` says why."""

    change: Change
    step_s: Seconds | None
    tokens_per_s: float | None
    gain: float | None
    usd_per_h: float | None
    how: str
    reason: str = ""
    gap: float | None = None

    @property
    def per_cost(self) -> float | None:
        """Gain (a fraction) per added USD/h; None if the change adds no cost or its cost is unknown."""
        return None if self.gain is None or self.usd_per_h is None or self.usd_per_h <= 0 else self.gain / self.usd_per_h

    def facts(self) -> dict[str, Any]:
        """The result as plain data."""
        return {
            "change": self.change.name,
            "step_s": self.step_s,
            "tokens_per_s": self.tokens_per_s,
            "gain": self.gain,
            "cost": self.usd_per_h,
            "gain_per_usd_per_h": self.per_cost,
            "how": self.how,
            "gap": self.gap,
            "reason_if_none": self.reason or None,
            "edits": dict(self.change.edits),
        }


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The present plan and the results of all changes, the largest gain first, changes without a plan last."""

    plan: Plan
    outcomes: tuple[Outcome, ...]
    seconds: Seconds
    interrupted: bool = False

    @property
    def base(self) -> Prediction:
        """The prediction of the present plan."""
        assert self.plan.prediction is not None
        return self.plan.prediction

    @property
    def gap(self) -> float:
        """Proven gap of the present plan; gains smaller than this are uncertain."""
        return self.plan.certificate.gap if self.plan.certificate else 0.0

    @property
    def frame(self) -> pd.DataFrame:
        """Data frame with one row per change, the best first. `cost_usd_per_h` is the added rent; `gain` 0.1 means 10% more."""
        found = frames.table([outcome.facts() for outcome in self.outcomes])
        return found.drop(columns="edits").rename(columns={"cost": "cost_usd_per_h"})

    def __repr__(self) -> str:
        where, found = self.plan.topology.name, [outcome for outcome in self.outcomes if outcome.gain is not None]
        text = f"{where}: {self.base.tokens_per_s:,.0f} tokens/s, {len(self.outcomes)} changes"
        return f"{text}; the best: {found[0].change.name}, {found[0].gain:+.1%}" if found else f"{text}, none with a plan"

    def _repr_html_(self) -> str:
        return frames.html(repr(self), self.frame)

    def facts(self) -> dict[str, Any]:
        """The result as plain data, as `holmes-sim what-if --json` prints it."""
        base = {"step_s": self.base.step_s, "tokens_per_s": self.base.tokens_per_s, "gap": self.gap}
        return {"base": base, "rows": [outcome.facts() for outcome in self.outcomes], "interrupted": self.interrupted}


def what_if(
    where: Topology,
    time_limit: Seconds = 100.0,
    progress: Callable[[str], None] = lambda text: None,
    menu: tuple[Change, ...] | None = None,
) -> WhatIf:
    """Rank changes of a topology with a workload by their gain: those of `menu`, or the default menu (`changes.menu`) if None.

    `time_limit` is in seconds. Raises TopologyError; Infeasible if the unchanged topology has no plan; HolmesError if the menu
    is empty."""
    begun = time.monotonic()
    if menu == ():
        raise HolmesError("menu: at least one change is needed; leave out the menu to use the default one")
    progress("the present plan")
    request = Request(where, commands.workload_of(where), Wishes(), max(PRESENT_SHARE * time_limit, MIN_PLANNING))
    now = api.plan(request, api.DEFAULT, PlanningContext(request))
    assert now.prediction is not None
    candidates = changes.menu(where) if menu is None else menu
    present = _relaxed(where)
    bound_gains = [present / _relaxed(change.made(where)) - 1 for change in candidates]
    simulated = _all_simulated(now, candidates, bound_gains, begun + SIMULATION_SHARE * time_limit)
    work = max(time_limit - (time.monotonic() - begun), MIN_PLANNING) * (os.cpu_count() or 1)
    estimates = [
        _estimate(now, gain, simulated[index]) if index in simulated else now.prediction.tokens_per_s * (1 + gain)
        for index, gain in enumerate(bound_gains)
    ]
    chosen = _chosen(estimates, int(work / MIN_PLANNING))
    found = sweep(
        where,
        scenarios=[dict(candidates[index].edits) for index in chosen],
        plan={"time_limit": max(work / len(chosen), MIN_PLANNING)},
        progress=lambda done, of: progress(f"{done} of {of} changes"),
    )
    answers = dict(zip(chosen, found.results, strict=True))
    outcomes = [_outcome(now, where, one, simulated.get(index), answers.get(index)) for index, one in enumerate(candidates)]
    outcomes.sort(key=lambda outcome: -math.inf if outcome.gain is None else outcome.gain, reverse=True)
    return WhatIf(now, tuple(outcomes), time.monotonic() - begun, found.interrupted)


def _all_simulated(
    now: Plan, candidates: tuple[Change, ...], bound_gains: list[float], due: float
) -> dict[int, Prediction | None]:
    """Predictions of the present plan on changed topologies, by index of the change.

    The changes with the largest gain of the bound come first; stops when `time.monotonic()` reaches `due`, after at least one.
    """
    found: dict[int, Prediction | None] = {}
    for index in sorted(range(len(candidates)), key=lambda index: -bound_gains[index]):
        if found and time.monotonic() >= due:
            break
        found[index] = _simulated(now, candidates[index], now.topology)
    return found


def _simulated(now: Plan, change: Change, where: Topology) -> Prediction | None:
    """Prediction of the present plan after a change; None if it does not fit or cannot divide the batch."""
    changed = change.made(where)
    work = commands.workload_of(changed)
    counts = [divmod(m * work.global_batch_size, now.workload.global_batch_size) for m in now.config.num_microbatches]
    if any(rest for _, rest in counts):
        return None
    try:
        config = replace(now.config, num_microbatches=tuple(count for count, _ in counts))
        plan = replace(now, topology=changed, workload=work, config=config, prediction=None, certificate=None)
        return simulation.simulate_plan(plan).prediction if simulation.fits(plan) else None
    except HolmesError:
        return None


def _relaxed(where: Topology) -> Seconds:
    """Relaxed lower bound of the planner, in seconds per token."""
    request = Request(where, commands.workload_of(where), Wishes(), math.inf)
    return relaxed_bound(request, PlanningContext(request), usual=True) / request.workload.tokens


def _estimate(now: Plan, bound_gain: float, simulated: Prediction | None) -> float:
    """Estimated tokens/s of a change: the larger of the gain of the bound and the simulated present plan.

    Infinite if the present plan cannot be simulated on it (None).
    """
    assert now.prediction is not None
    return math.inf if simulated is None else max(now.prediction.tokens_per_s * (1 + bound_gain), simulated.tokens_per_s)


def _chosen(estimates: list[float], most: int) -> tuple[int, ...]:
    """Indices of the changes that are replanned: at most `most`, the largest estimates first."""
    return tuple(sorted(range(len(estimates)), key=lambda index: -estimates[index])[:most])


def _outcome(now: Plan, where: Topology, change: Change, simulated: Prediction | None, row: Row | None) -> Outcome:
    """Result of a change: the faster of the present plan on it and its new plan, and its cost."""
    cost = _cost(change, where)
    assert now.prediction is not None
    planned = row if row is not None and row["status"] == worker.PLANNED else None
    known = [(simulated.tokens_per_s, simulated.step_s)] if simulated else []
    known += [(planned["tokens_per_s"], planned["step_s"])] if planned else []
    if known:
        tokens, step = max(known)
        gap = 1 - planned["step_s"] * (1 - planned["gap"]) / step if planned and planned["gap"] is not None else None
        how = PLANNED if planned else PRESENT_PLAN
        return Outcome(change, step, tokens, tokens / now.prediction.tokens_per_s - 1, cost, how, gap=gap)
    reason = "the time limit was reached" if row is None else str(row["reason_if_none"])
    return Outcome(change, None, None, None, cost, PLANNED if row else PRESENT_PLAN, reason)


def _cost(change: Change, where: Topology) -> float | None:
    """Rent that a change adds, in USD/h; None if a price is missing, or if a change of hardware does not change the rent."""
    before, after = cost_energy.rent(where.fleet), cost_energy.rent(change.made(where).fleet)
    of_machines = any(path.startswith(("clusters.", "links")) for path, _ in change.edits)
    if before is None or after is None or (of_machines and before == after):
        return None
    return (after - before) / units.KINDS["price"][0]["USD/h"]
