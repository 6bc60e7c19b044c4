"""What changes would gain: a row for each, the best first."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from holmes_sim.printing.tables import grid
from holmes_sim.whatif import PLAYED, Outcome, WhatIf
from sim.units import time_text

LOOSE = 0.1
"""Gap from which on more time to plan is advised: a guess."""


def asked(found: WhatIf) -> RenderableType:
    """The present plan, the table, the best by cost, and what the numbers rest on."""
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
            how = "the present one: no time" if outcome.how == PLAYED else "anew"
            table.add_row(outcome.change.name, *numbers, *cost, gap, how)
    return Group(Text(head), Text(), table, *map(Text, _notes(found, priced)))


def _notes(found: WhatIf, priced: bool) -> list[str]:
    lines = ["Plans are `within` so much of the best, as far as is proved: a gain below that says little."]
    if max((outcome.gap or 0.0 for outcome in found.outcomes), default=0.0) > LOOSE:
        lines.append("Some could be much better: give them more time (--time-limit).")
    worth = sorted((o for o in found.outcomes if o.per_cost is not None and o.gain), key=lambda o: -(o.per_cost or 0.0))
    if worth and worth[0].gain and worth[0].gain > 0:
        lines.append(f"Most for the money: {worth[0].change.name}.")
    if not priced:
        lines.append("No cost: not every device has a price (`price` beside its type, or of NICs and links, in the topology).")
    best = next((outcome for outcome in found.outcomes if outcome.gain), None)
    if best is not None:
        lines.append(f"By hand: holmes-sim plan TOPO {_by_hand(best)}")
    return lines


def _by_hand(outcome: Outcome) -> str:
    import json
    import shlex

    values = ((path, value if isinstance(value, str) else json.dumps(value)) for path, value in outcome.change.edits)
    return " ".join(f"--set {shlex.quote(f'{path}={value}')}" for path, value in values)


def _money(usd_per_h: float | None) -> str:
    return "" if usd_per_h is None else f"{usd_per_h:+,.2f}"
