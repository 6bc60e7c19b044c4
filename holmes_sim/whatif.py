"""What to buy next: every change of the menu, planned and simulated anew, ranked by what it gains.

Two prices pick what is planned anew where the time is short. The programme's shadow price, by how much its relaxation gains
(`planner.bounds.relaxation.relaxed_bound`), knows what machines, memory and work are worth, and nothing of links. The
simulator's price is what the present plan gains where it is played on the changed machines: it knows links, and nothing of
machines that the present plan has no use for. The greater of both is what a change promises. Where the present plan cannot be
played, because it does not fit or its replicas cannot share the batch, the change is planned anew before any other. Where
playing alone takes half of the time (fleets of many links), what is left of the menu has its shadow price only. The simulator's
number of the better of both plans decides.
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
from holmes_sim.sweeping import answering
from holmes_sim.sweeping.answering import Row
from holmes_sim.sweeping.sweep import sweep
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

PLANNED, PLAYED = "planned", "played"
FIRST = 0.25
"""Share of the time for the present plan: a guess."""
PLAYING = 0.5
"""Share of the time after which the present plan is played on no more changed machines: a guess. The links among those that are
left promise nothing; where there are so many, planning anew would have no time either."""
LEAST: Seconds = 5.0
"""Seconds that a change has to be planned in, at least: fewer changes are planned anew rather than all of them badly."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A change and what it gives: `tokens_per_s` and `step_s` of its plan, `gain` in tokens/s over now (0.1 is a tenth more).

    `usd_per_h` is the rent it adds, None where a price is missing; `how` it is known: planned anew, or played, the present plan
    on the changed machines. `gap` says how far its plan can be from the best where it was planned anew, else None. Where there
    is no plan the numbers are None and `reason` says why."""

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
        """Gain (of 1) for each USD/h that is added; None where nothing is added, or not known what."""
        return None if self.gain is None or self.usd_per_h is None or self.usd_per_h <= 0 else self.gain / self.usd_per_h

    def facts(self) -> dict[str, Any]:
        """As plain data."""
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
    """The present plan, and the changes by what they gain, the best first; those without a plan last."""

    plan: Plan
    outcomes: tuple[Outcome, ...]
    seconds: Seconds
    interrupted: bool = False

    @property
    def base(self) -> Prediction:
        """What the present plan promises."""
        assert self.plan.prediction is not None
        return self.plan.prediction

    @property
    def gap(self) -> float:
        """How far plans may be from the best: gains below it say little."""
        return self.plan.certificate.gap if self.plan.certificate else 0.0

    @property
    def frame(self) -> pd.DataFrame:
        """A row for each change, the best first. `cost_usd_per_h` is the rent it adds, `gain` is 0.1 for a tenth more."""
        found = frames.table([outcome.facts() for outcome in self.outcomes])
        return found.drop(columns="edits").rename(columns={"cost": "cost_usd_per_h"})

    def __repr__(self) -> str:
        where, found = self.plan.topology.name, [outcome for outcome in self.outcomes if outcome.gain is not None]
        text = f"{where}: {self.base.tokens_per_s:,.0f} tokens/s, {len(self.outcomes)} changes"
        return f"{text}; the best, {found[0].gain:+.1%}: {found[0].change.name}" if found else f"{text}, none with a plan"

    def _repr_html_(self) -> str:
        return frames.html(repr(self), self.frame)

    def facts(self) -> dict[str, Any]:
        """What `holmes-sim what-if --json` prints."""
        base = {"step_s": self.base.step_s, "tokens_per_s": self.base.tokens_per_s, "gap": self.gap}
        return {"base": base, "rows": [outcome.facts() for outcome in self.outcomes], "interrupted": self.interrupted}


def what_if(
    where: Topology,
    time_limit: Seconds = 100.0,
    progress: Callable[[str], None] = lambda text: None,
    menu: tuple[Change, ...] | None = None,
) -> WhatIf:
    """Rank the changes of the menu (or of one's own) for a topology with a workload.

    Raises TopologyError, Infeasible where the topology has no plan as it is, HolmesError where the menu is empty."""
    begun = time.monotonic()
    if menu == ():
        raise HolmesError("menu: at least one change is needed; without one the whole menu is asked")
    progress("the present plan")
    request = Request(where, commands.workload_of(where), Wishes(), max(FIRST * time_limit, LEAST))
    now = api.plan(request, api.DEFAULT, PlanningContext(request))
    assert now.prediction is not None
    asked = changes.menu(where) if menu is None else menu
    present = _relaxed(where)
    prices = [present / _relaxed(change.made(where)) - 1 for change in asked]
    played = _all_played(now, asked, prices, begun + PLAYING * time_limit)
    work = max(time_limit - (time.monotonic() - begun), LEAST) * (os.cpu_count() or 1)
    promises = [
        _promise(now, price, played[place]) if place in played else now.prediction.tokens_per_s * (1 + price)
        for place, price in enumerate(prices)
    ]
    chosen = _chosen(promises, int(work / LEAST))
    found = sweep(
        where,
        scenarios=[dict(asked[place].edits) for place in chosen],
        plan={"time_limit": max(work / len(chosen), LEAST)},
        progress=lambda done, of: progress(f"{done} of {of} changes"),
    )
    answers = dict(zip(chosen, found.answers, strict=True))
    outcomes = [_outcome(now, where, change, played.get(place), answers.get(place)) for place, change in enumerate(asked)]
    outcomes.sort(key=lambda outcome: -math.inf if outcome.gain is None else outcome.gain, reverse=True)
    return WhatIf(now, tuple(outcomes), time.monotonic() - begun, found.interrupted)


def _all_played(now: Plan, asked: tuple[Change, ...], prices: list[float], due: float) -> dict[int, Prediction | None]:
    """What the present plan promises on changed machines, by their place; the highest price first, until it is time."""
    found: dict[int, Prediction | None] = {}
    for place in sorted(range(len(asked)), key=lambda place: -prices[place]):
        if found and time.monotonic() >= due:
            break
        found[place] = _played(now, asked[place], now.topology)
    return found


def _played(now: Plan, change: Change, where: Topology) -> Prediction | None:
    """What the present plan promises on the changed machines or for the changed work; None where it does not fit them."""
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
    """Seconds a token of the programme's relaxation."""
    request = Request(where, commands.workload_of(where), Wishes(), math.inf)
    return relaxed_bound(request, PlanningContext(request), usual=True) / request.workload.tokens


def _promise(now: Plan, price: float, played: Prediction | None) -> float:
    """Tokens a second that a change promises: by its shadow price, as a gain, or by playing the present plan."""
    assert now.prediction is not None
    return math.inf if played is None else max(now.prediction.tokens_per_s * (1 + price), played.tokens_per_s)


def _chosen(promises: list[float], most: int) -> tuple[int, ...]:
    """Which changes are planned anew: those that promise most."""
    return tuple(sorted(range(len(promises)), key=lambda place: -promises[place])[:most])


def _outcome(now: Plan, where: Topology, change: Change, played: Prediction | None, row: Row | None) -> Outcome:
    """The better of both plans, and what the change costs."""
    cost = _cost(change, where)
    assert now.prediction is not None
    planned = row if row is not None and row["status"] == answering.PLANNED else None
    known = [(played.tokens_per_s, played.step_s)] if played else []
    known += [(planned["tokens_per_s"], planned["step_s"])] if planned else []
    if known:
        tokens, step = max(known)
        gap = 1 - planned["step_s"] * (1 - planned["gap"]) / step if planned and planned["gap"] is not None else None
        how = PLANNED if planned else PLAYED
        return Outcome(change, step, tokens, tokens / now.prediction.tokens_per_s - 1, cost, how, gap=gap)
    reason = "the time was up" if row is None else str(row["reason_if_none"])
    return Outcome(change, None, None, None, cost, PLANNED if row else PLAYED, reason)


def _cost(change: Change, where: Topology) -> float | None:
    """USD/h that a change adds; None where it is of machines whose price nobody has said."""
    before, after = cost_energy.rent(where.fleet), cost_energy.rent(change.made(where).fleet)
    of_machines = any(path.startswith(("clusters.", "links")) for path, _ in change.edits)
    if before is None or after is None or (of_machines and before == after):
        return None
    return (after - before) / units.KINDS["price"][0]["USD/h"]
