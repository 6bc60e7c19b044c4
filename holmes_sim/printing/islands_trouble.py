"""Tables of islands in trouble: outer periods with faults, an island that leaves, and goodput."""

from __future__ import annotations

from rich.console import Group
from rich.text import Text

from holmes_sim.islands_goodput import IslandsGoodput
from holmes_sim.islands_trouble import IslandsTrouble, Left
from holmes_sim.printing.tables import grid
from sim.units import duration_text, time_text


def islands_trouble(found: IslandsTrouble | Left) -> Group:
    """Table of outer periods with faults, or sentences about an island that leaves."""
    if isinstance(found, Left):
        return Group(
            Text(),
            Text(
                f"Island {found.island} leaves after {duration_text(found.at)}: the others lose {time_text(found.waited)} "
                f"once, and go on with {found.after:,.0f} tokens/s, not {found.before:,.0f}."
            ),
        )
    table = grid(f"Outer period with faults ({found.faults}), {len(found.seeds)} seeds", "name", "outer period", "slower by")
    rows = {"without faults": found.fault_free_s, "mean": found.mean_s, "95 % of the seeds": found.quantile_s(0.95)}
    for name, seconds in (rows | {"slowest": max(found.periods_s)}).items():
        table.add_row(name, time_text(seconds), f"{seconds / found.fault_free_s - 1:.1%}")
    return Group(Text(), table)


def islands_goodput(found: IslandsGoodput) -> Group:
    """Table of the islands, and one sentence that compares them with a synchronous run."""
    table = grid("Goodput of islands", "island", "batch", "a failure every", "goodput")
    for index, (batch, run) in enumerate(zip(found.plan.batches, found.runs, strict=True)):
        table.add_row(str(index), str(batch), duration_text(run.between), f"{run.goodput:.2%}")
    return Group(
        table,
        Text(
            f"Together {found.goodput:.2%}: {found.tokens_per_s:,.0f} useful tokens/s. An island that fails does not stop the "
            "others, and takes their weights at the next exchange. One synchronous run of the same devices, with checkpoints: "
            f"{found.together.goodput:.2%}."
        ),
    )
