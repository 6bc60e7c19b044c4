"""Tables of islands in trouble: outer periods with faults, islands that leave and come back, and goodput."""

from __future__ import annotations

from rich.console import Group
from rich.text import Text

from holmes_sim.islands_elastic import ElasticIslands
from holmes_sim.islands_goodput import IslandsGoodput
from holmes_sim.islands_leaving import Left
from holmes_sim.islands_trouble import IslandsTrouble
from holmes_sim.printing.tables import grid
from sim.islands.leaving import Leave
from sim.units import duration_text, size_text, time_text


def islands_trouble(found: IslandsTrouble | Left) -> Group:
    """Table of outer periods with faults, or sentences about an island that leaves."""
    if isinstance(found, Left):
        return Group(Text(), Text(_left(found)))
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


def elastic_islands(found: ElasticIslands) -> Group:
    """Table of islands that leave and come back, what that costs, and a synchronous run beside it."""
    title = f"Islands that leave and come back ({', '.join(map(_leave, found.leaves))})"
    islands = grid(title, "island", "leaves every", "away", "present", "live checkpoint")
    for index, (one, seconds) in enumerate(zip(found.leaving, found.checkpoints, strict=True)):
        checkpoint = f"{size_text(found.checkpoint)}, {duration_text(seconds)}"
        islands.add_row(str(index), duration_text(one.every), duration_text(one.away), f"{one.present:.2%}", checkpoint)
    rate = found.rate
    costs = grid("Tokens/s", "name", "tokens/s", "share")
    rows = {
        "never leaving": rate.full,
        "lost while away": -rate.away,
        "lost by leaves: steps, exchanges, timeouts": -rate.leaves,
        "lost by returns: others wait for the checkpoint": -rate.returns,
        "useful": rate.useful,
    }
    for name, tokens in rows.items():
        costs.add_row(name, f"{tokens:,.0f}", f"{tokens / rate.full:.2%}")
    least, most, runs = min(found.simulated), max(found.simulated), len(found.simulated)
    words = f"Simulated, {found.days:.3g} days, {runs} seeds: {found.mean:,.0f} useful tokens/s ({least:,.0f} to {most:,.0f})."
    if found.together is not None:
        words += f" One synchronous run that stops until all are back: {found.together.goodput:.2%}."
    return Group(Text(), islands, Text(), costs, Text(words))


def _leave(leave: Leave) -> str:
    """A kind of leave in words."""
    return f"{leave.kind} every {duration_text(leave.every)} for {duration_text(leave.away)}"


def _left(found: Left) -> str:
    """Sentences about an island that leaves, and its return."""
    text = (
        f"Island {found.island} leaves after {duration_text(found.at)}: the others lose {time_text(found.waited)} once, and go "
        f"on with {found.after:,.0f} tokens/s, not {found.before:,.0f}."
    )
    if (back := found.back) is None:
        return text
    return text + (
        f" It is back {duration_text(back.away)} later: island {back.source} sends it {size_text(back.checkpoint)} at the next "
        f"start of an outer period, the others wait {duration_text(back.waited)}, and all go on with {found.before:,.0f} "
        "tokens/s."
    )
