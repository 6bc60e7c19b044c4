"""Table of what-if changes: one row per change, the largest gain first."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from holmes_sim.printing.tables import grid
from holmes_sim.whatif import PRESENT_PLAN, Outcome, WhatIf
from sim.units import time_text

LARGE_GAP = 0.1
"""Gap above which the output advises a longer time limit. Guess."""


def what_if(found: WhatIf) -> RenderableType:
    """The present plan, the table of changes, and notes on gaps, cost and the best change."""
    now, plan = found.base, found.plan
    head = (
        f"{plan.topology.name}: {plan.workload.model.name}, {now.tokens_per_s:,.0f} tokens/s, "
        f"a step of {time_text(now.step_s)} (within {found.gap:.1%} of the best)"
    )
    priced = any(outcome.usd_per_h is not None for outcome in found.outcomes)
    columns = ["change", "step", "tokens/s", "gain", *(("USD/h", "gain per\n100 USD/h") if priced else ()), "within", "plan"]
    table = grid("What if", *columns)
    for outcome in found.outcomes:
        cost = (
            (_money(outcome.usd_per_h), "" if outcome.per_cost is None else f"{100 * outcome.per_cost:+.1%}") if priced else ()
        )
        if outcome.step_s is None or outcome.gain is None:
            table.add_row(outcome.change.name, "-", "-", "-", *cost, "", "none: " + outcome.reason)
        else:
            numbers = (time_text(outcome.step_s), f"{outcome.tokens_per_s:,.0f}", f"{outcome.gain:+.1%}")
            gap = "" if outcome.gap is None else f"{outcome.gap:.1%}"
            how = "the present one (not replanned)" if outcome.how == PRESENT_PLAN else "new"
            table.add_row(outcome.change.name, *numbers, *cost, gap, how)
    return Group(Text(head), Text(), table, *map(Text, _notes(found, priced)))


def _notes(found: WhatIf, priced: bool) -> list[str]:
    lines = ["within: proven gap between the plan and the best plan; a gain smaller than this gap is uncertain."]
    if max((outcome.gap or 0.0 for outcome in found.outcomes), default=0.0) > LARGE_GAP:
        lines.append("Some plans may be far from the best; a longer --time-limit finds better ones.")
    worth = sorted((o for o in found.outcomes if o.per_cost is not None and o.gain), key=lambda o: -(o.per_cost or 0.0))
    if worth and worth[0].gain and worth[0].gain > 0:
        lines.append(f"Largest gain per cost: {worth[0].change.name}.")
    if not priced:
        lines.append("No cost: a price is missing (key `price` of devices, NICs and links in the topology).")
    best = next((outcome for outcome in found.outcomes if outcome.gain), None)
    if best is not None:
        lines.append(f"Plan for the best change: holmes-sim plan TOPO {_settings(best)}")
    return lines


def _settings(outcome: Outcome) -> str:
    import json
    import shlex

    values = ((path, value if isinstance(value, str) else json.dumps(value)) for path, value in outcome.change.edits)
    return " ".join(f"--set {shlex.quote(f'{path}={value}')}" for path, value in values)


def _money(usd_per_h: float | None) -> str:
    return "" if usd_per_h is None else f"{usd_per_h:+,.2f}"
