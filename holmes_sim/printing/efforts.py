"""Tables of the work of a search: what became of the layouts, and what was done how often and for how long."""

from __future__ import annotations

from typing import get_args

from rich.console import Group
from rich.text import Text

from holmes_sim.printing.tables import grid
from planner.effort import Activity, Effort, Level, Outcome

LEVELS: dict[Level, str] = {"base": "degrees and recomputation", "schedule": "with a schedule", "variant": "and a ZeRO stage"}
"""Level of layouts -> its name in the table. A layout with a schedule is a part of one without, and so on."""


def effort(found: Effort) -> Group:
    """The work of the certified search; nothing for other strategies, which do not record it."""
    if not found.layouts:
        return Group()
    outcomes = get_args(Outcome)
    layouts = grid("Layouts searched", "layout", "all", *outcomes)
    for level, name in LEVELS.items():
        counts = [found.layouts[level, outcome] for outcome in outcomes]
        layouts.add_row(name, str(sum(counts)), *(str(count or "-") for count in counts))
    work = grid("Work of the search", "name", "number", "seconds")
    for activity in get_args(Activity):
        work.add_row(activity, str(found.times[activity] or "-"), f"{found.seconds.get(activity, 0.0):.2f}")
    opened = (
        "An opened layout is divided into those of the next line; dismissed are those with no memory and those that the quick"
    )
    return Group(
        Text(), layouts, Text(f"{opened} bound, a deadline test or another layout (dominated) rules out."), Text(), work
    )
