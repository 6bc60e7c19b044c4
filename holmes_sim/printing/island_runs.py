"""Table of measured outer periods of a plan of islands, beside their simulation."""

from __future__ import annotations

from rich.console import Group
from rich.text import Text

from holmes_sim.printing.tables import STYLE, grid
from holmes_sim.running_islands import MeasuredIslands
from sim.units import time_text


def measured_islands(run: MeasuredIslands) -> Group:
    """The sync strategy, and the times of an outer period, simulated and measured."""
    found = run.measured
    table = grid("Outer period", "name", "simulated", "measured", "error")
    table.columns[0].header = ""
    for what, simulated, measured in run.times():
        error = f"{simulated / measured - 1:+.1%}" if measured and simulated else "-"
        table.add_row(what, time_text(simulated), time_text(measured), error)
    islands = f"{len(run.plan.islands)} islands, sync {run.plan.sync}"
    periods = (
        f"mean of {len(found.periods_s)} outer periods of {run.plan.sync.inner_steps} inner steps, {found.compute} compute"
    )
    parts = [Text(f"{run.plan.topology.name}: {islands}", style=STYLE), Text(periods)]
    if found.scale != 1:
        parts.append(Text(f"Simulated times are multiplied by {found.scale:g}, the time scale of this run."))
    losses = [Text(f"Loss {found.losses[0]:.4f} at the first inner step, {found.losses[-1]:.4f} at the last.")]
    return Group(*parts, Text(), table, *(losses if any(found.losses) else ()))
