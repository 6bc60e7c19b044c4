"""Table of what-if changes: one row per change, the largest gain first."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from holmes_sim import targets
from holmes_sim.outcomes import PLANNED, PRESENT_PLAN, UNUSED, Outcome
from holmes_sim.plan_numbers import PlanNumbers
from holmes_sim.printing.islands import GIVES_UP
from holmes_sim.printing.sync_notes import SYNC_COLUMNS, sync_cells, sync_notes
from holmes_sim.printing.tables import grid
from holmes_sim.whatif import WhatIf
from sim.plan.plan import Plan
from sim.units import time_text

LARGE_GAP = 0.1
"""Gap above which the output advises a longer time limit. Guess."""
PLANS = {PLANNED: "new", PRESENT_PLAN: "today's", UNUSED: "part unused"}
"""Text of the column `plan` by `Outcome.how`."""


def what_if(found: WhatIf) -> RenderableType:
    """The present plan, the table of changes, and notes on gaps, sync strategies, cost and the best change."""
    shown = _shown(found)
    if not shown:
        return Group(Text(_head(found)), *map(Text, _notes(found, shown, False)))
    priced = any(outcome.usd_per_h is not None for outcome in found.outcomes)
    numbers = SYNC_COLUMNS if found.answer else COLUMNS
    columns = ["change", *numbers, "gain", "at most", *(("USD/h", "gain per\n100 USD/h") if priced else ()), "plan"]
    table = grid("What if", *columns)
    for outcome in shown:
        known = outcome.is_known(found.gap)
        per_cost = "" if outcome.per_cost is None or not known else f"{100 * outcome.per_cost:+.1%}"
        cost = (_money(outcome.usd_per_h), per_cost) if priced else ()
        if outcome.found is None:
            table.add_row(outcome.change.name, *("-" for _ in numbers), "-", "-", *cost, "none")
        else:
            gain = _gain(outcome.gain, known, found.answer is not None)
            most = "?" if outcome.gain_at_most is None else f"{outcome.gain_at_most:+.1%}"
            cells = _cells(outcome.found, found.answer is not None)
            table.add_row(outcome.change.name, *cells, gain, most, *cost, PLANS[outcome.how])
    return Group(Text(_head(found)), Text(), table, *map(Text, _notes(found, shown, priced)))


COLUMNS = ("step", "tokens/s")
"""Columns with the numbers of an exact plan."""


def _cells(numbers: PlanNumbers, of_islands: bool) -> tuple[str, ...]:
    """Cells of `COLUMNS`, or of `SYNC_COLUMNS`."""
    if of_islands:
        worth = None if numbers.worth is None else numbers.worth[:2]
        return sync_cells(numbers.tokens_per_s, worth, numbers.sync, numbers.price)
    return time_text(numbers.step_s), f"{numbers.tokens_per_s:,.0f}"


def _gain(gain: float | None, known: bool, of_islands: bool) -> str:
    """The gain, if it is known. Where islands are allowed, one that is not known is in brackets: bounds of exact plans across
    thin links are far from what these reach, so that few gains are known."""
    if gain is None or not (known or of_islands):
        return "not known"
    return f"{gain:+.1%}" if known else f"({gain:+.1%})"


def _head(found: WhatIf) -> str:
    """The plan of today in one line."""
    now, plan = found.base, found.plan
    name = f"{plan.topology.name}: {plan.workload.model.name}, {now.tokens_per_s:,.0f} tokens/s"
    if found.answer is None:
        return f"{name}, a step of {time_text(now.step_s)} (within {found.gap:.1%} of the best)"
    worth = "of unknown worth" if now.effective is None else f"{now.effective:,.0f} effective"
    return f"{name}, {worth}, with sync {now.sync} (gives up: {GIVES_UP[now.price]}), within {found.gap:.1%} of the best"


def _shown(found: WhatIf) -> list[Outcome]:
    """The outcomes that were evaluated; of an addition that has no known gain in any size, only the largest size."""
    evaluated = [outcome for outcome in found.outcomes if outcome.is_evaluated]
    gained = {outcome.change.family for outcome in evaluated if outcome.is_known(found.gap)}
    largest: dict[str, Outcome] = {}
    for outcome in evaluated:  # a larger size gains no less; of equal gains, it comes later
        if outcome.gain == largest.setdefault(outcome.change.family, outcome).gain:
            largest[outcome.change.family] = outcome
    alone = gained | {""}
    return [one for one in evaluated if one.change.family in alone or one is largest[one.change.family]]


def _notes(found: WhatIf, shown: Sequence[Outcome], priced: bool) -> list[str]:
    lines = [f"{one.change.name}: no plan: {one.reason}" for one in shown if one.found is None]
    kinds = {outcome.how for outcome in shown if outcome.found is not None}
    if shown:
        most = "plan of the searched islands and batches" if found.answer else "plan"
        unknown = "in brackets, not known" if found.answer else "not known"
        lines += [
            f"gain: {_measure(found)} of the plan found, over those of today's plan.",
            f"{unknown}: better plans, which are not excluded yet, may make up for the difference.",
            f"at most: no {most} of the changed topology gains more over today's plan; ?: it was not replanned.",
        ]
        lines += _given_up(found, shown) if found.answer else []
    if PRESENT_PLAN in kinds:
        plan = "today's islands with the sync strategy chosen anew, or exact plan," if found.answer else "today's plan,"
        lines.append(f"today's: {plan} simulated on the changed topology; a longer --time-limit replans more changes.")
    if UNUSED in kinds:
        lines.append("part unused: no faster plan was found than one that leaves the addition, or a part of it, unused.")
    hidden = sum(outcome.is_evaluated for outcome in found.outcomes) - len(shown)
    if hidden:
        lines.append(f"{hidden} smaller sizes, whose gain is not known either, are not shown (--json has them).")
    left = sum(not outcome.is_evaluated for outcome in found.outcomes)
    if left:
        lines.append(f"{left} of {len(found.outcomes)} changes were not evaluated in the time limit.")
    if max((outcome.gap or 0.0 for outcome in found.outcomes), default=found.gap) > LARGE_GAP or found.gap > LARGE_GAP:
        lines.append("Some plans may be far from the best; a longer --time-limit finds better ones.")
    sure = [outcome for outcome in shown if outcome.is_known(found.gap) and (outcome.gain or 0.0) > 0]
    worth = max((outcome for outcome in sure if outcome.per_cost), key=lambda one: one.per_cost or 0.0, default=None)
    if worth is not None:
        lines.append(f"Largest gain per cost: {worth.change.name}.")
    if not priced:
        lines.append("No cost: a price is missing (key `price` of devices, NICs and links in the topology).")
    if sure:
        lines.append(f"Plan for the best change: holmes-sim plan TOPO {_launched(found)}{_settings(sure[0])}")
    return lines


def _measure(found: WhatIf) -> str:
    """What gains are gains of."""
    if found.answer is None:
        return "tokens/s"
    return "tokens/s (their worth is unknown)" if found.base.worth is None else "effective tokens/s (tokens/s x their worth)"


def _given_up(found: WhatIf, shown: Sequence[Outcome]) -> list[str]:
    """What the sync strategies of the plans give up, and where the worth of a token is from."""
    every = [found.base, *(one.found for one in shown if one.found is not None)]
    return sync_notes((one.price, one.worth is not None) for one in every)


def _launched(found: WhatIf) -> str:
    """The options that the plans are limited by, if they are made for a launch target, or with sync strategies."""
    sync = f"--sync {shlex.quote(found.sync)} " if found.answer else ""
    plan = found.plan if isinstance(found.plan, Plan) else found.plan.islands[0]
    target = (plan.certificate.target if plan.certificate is not None else "") or targets.NONE
    return sync + (f"--for {shlex.quote(target)} " if target != targets.ANY else "")


def _settings(outcome: Outcome) -> str:
    values = ((path, value if isinstance(value, str) else json.dumps(value)) for path, value in outcome.change.edits)
    return " ".join(f"--set {shlex.quote(f'{path}={value}')}" for path, value in values)


def _money(usd_per_h: float | None) -> str:
    return "" if usd_per_h is None else f"{usd_per_h:+,.2f}"
