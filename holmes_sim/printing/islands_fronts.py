"""Table of plans that trade speed, money and what sync strategies between islands give up."""

from __future__ import annotations

from rich.console import Group
from rich.text import Text

from holmes_sim.islands_front import IslandsFront, devices
from holmes_sim.printing.comparisons import heading
from holmes_sim.printing.sync_notes import SYNC_COLUMNS, sync_cells, sync_notes
from holmes_sim.printing.tables import grid
from planner.islands.node_ranges import partition_text
from planner.islands.row_limits import usd_per_token
from sim.units import MEGA


def islands_front(found: IslandsFront) -> Group:
    """Heading, table, what the plans give up, and which plans are left out."""
    costs = ("USD per\nM effective",) if found.has_costs else ()
    table = grid("Plans to choose from", "#", *SYNC_COLUMNS, *costs, "devices", "cluster")
    for number, row in enumerate(found.rows, 1):
        worth = None if row.worth is None else (row.worth.expected, row.worth.low)
        spent = [f"{(usd_per_token(row) or 0.0) * MEGA:.4g}"] if found.has_costs else []
        where = partition_text(row.islands)
        table.add_row(
            str(number), *sync_cells(row.tokens_per_s, worth, row.short, row.price), *spent, str(devices(row)), where
        )  # fmt: skip
    lines = [f"{len(found.others)} other plans: one of these is about as fast, costs no more and gives up no more."]
    lines += sync_notes((row.price, row.worth is not None) for row in found.rows)
    if found.unknown:
        lines.append(f"{found.unknown} plans are not compared: what a token of their strategies is worth is unknown.")
    if not found.has_costs:
        lines.append("No cost: not every device has a price.")
    return Group(heading(found.request), Text(), table, *map(Text, lines))
