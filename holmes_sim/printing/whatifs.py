"""Table of what-if changes: one row per change, the largest gain first."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from holmes_sim import targets
from holmes_sim.outcomes import PLANNED, PRESENT_PLAN, UNUSED, Outcome
from holmes_sim.printing.tables import grid
from holmes_sim.whatif import WhatIf
from sim.units import time_text

LARGE_GAP = 0.1
"""Gap above which the output advises a longer time limit. Guess."""
PLANS = {PLANNED: "new", PRESENT_PLAN: "today's", UNUSED: "part unused"}
"""Text of the column `plan` by `Outcome.how`."""


def what_if(found: WhatIf) -> RenderableType:
    """The present plan, the table of changes, and notes on gaps, cost and the best change."""
    now, plan = found.base, found.plan
    head = (
        f"{plan.topology.name}: {plan.workload.model.name}, {now.tokens_per_s:,.0f} tokens/s, "
        f"a step of {time_text(now.step_s)} (within {found.gap:.1%} of the best)"
    )
    shown = _shown(found)
    if not shown:
        return Group(Text(head), *map(Text, _notes(found, shown, False)))
    priced = any(outcome.usd_per_h is not None for outcome in found.outcomes)
    columns = ["change", "step", "tokens/s", "gain", "at most", *(("USD/h", "gain per\n100 USD/h") if priced else ()), "plan"]
    table = grid("What if", *columns)
    for outcome in shown:
        known = outcome.is_known(found.gap)
        per_cost = "" if outcome.per_cost is None or not known else f"{100 * outcome.per_cost:+.1%}"
        cost = (_money(outcome.usd_per_h), per_cost) if priced else ()
        if outcome.step_s is None or outcome.gain is None:
            table.add_row(outcome.change.name, "-", "-", "-", "-", *cost, "none")
        else:
            gain = f"{outcome.gain:+.1%}" if known else "not known"
            most = "?" if outcome.gain_at_most is None else f"{outcome.gain_at_most:+.1%}"
            numbers = (time_text(outcome.step_s), f"{outcome.tokens_per_s:,.0f}", gain, most)
            table.add_row(outcome.change.name, *numbers, *cost, PLANS[outcome.how])
    return Group(Text(head), Text(), table, *map(Text, _notes(found, shown, priced)))


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
    lines = [f"{one.change.name}: no plan: {one.reason}" for one in shown if one.step_s is None]
    kinds = {outcome.how for outcome in shown if outcome.step_s is not None}
    if shown:
        lines += [
            "gain: tokens/s of the plan found, over those of today's plan.",
            "not known: better plans, which are not excluded yet, may make up for the difference.",
            "at most: no plan of the changed topology gains more over today's plan; ?: it was not replanned.",
        ]
    if PRESENT_PLAN in kinds:
        lines.append("today's: today's plan, simulated on the changed topology; a longer --time-limit replans more changes.")
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


def _launched(found: WhatIf) -> str:
    """The option that the plans are limited by, if they are made for a launch target."""
    target = (found.plan.certificate.target if found.plan.certificate is not None else "") or targets.NONE
    return f"--for {shlex.quote(target)} " if target != targets.ANY else ""


def _settings(outcome: Outcome) -> str:
    values = ((path, value if isinstance(value, str) else json.dumps(value)) for path, value in outcome.change.edits)
    return " ".join(f"--set {shlex.quote(f'{path}={value}')}" for path, value in values)


def _money(usd_per_h: float | None) -> str:
    return "" if usd_per_h is None else f"{usd_per_h:+,.2f}"
