"""Tables of a sweep: one row per scenario, and why some have no plan."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from holmes_sim.printing.sync_notes import SYNC_COLUMNS, sync_cells, sync_notes
from holmes_sim.printing.tables import STYLE, grid
from holmes_sim.sweeping import speeds, table
from holmes_sim.sweeping.study import Study
from holmes_sim.sweeping.sweep import Swept
from holmes_sim.sweeping.worker import PLANNED, Row
from sim.units import time_text

MAX_ROWS = 40
"""Maximum number of rows that are printed; of more, the rows with the most tokens per second."""
HEADER_WIDTH = 18
"""Maximum characters per line in the header of a varied key, if the key can be split."""
HEADERS = ("step", "samples/s", "tokens/s", "MFU", "bubble", "of compute-\nonly speed", "gap", "layout")
SYNC_HEADERS = (*SYNC_COLUMNS, "gap", "layout")
"""Columns after the varied keys: of exact plans, and where islands are allowed."""
GAP = "gap: how far the plan can be from the best one of its search: exact plans, and islands with the batches that were tried."
KEPT = "*: the plan of another row, which this one can have, too; its own search found a slower one."


def swept(found: Swept) -> Group:
    """Table of the scenarios of a study, all or the best ones, and each reason for a missing plan once."""
    rows, best = found.rows, found.best
    shown, title = rows, "Scenarios"
    if len(rows) > MAX_ROWS:
        planned = [row for row in rows if row["status"] == PLANNED]
        shown = sorted(planned, key=speeds.rank, reverse=True)[:MAX_ROWS]
        title = f"Scenarios, {len(shown)} of {len(rows)}, most tokens/s first"
    every = {cluster.name for cluster in found.study.topology.fleet.clusters}
    names, has_islands = tuple(table.varied(found.study)), speeds.allows_islands(found.study)
    headers, numbers = (SYNC_HEADERS, _numbers_with_sync) if has_islands else (HEADERS, _numbers)
    drawn = grid(title, *map(_header, names), *headers)
    for row in shown:
        cells = numbers(row, every) if row["status"] == PLANNED else _no_numbers(row, len(headers))
        drawn.add_row(*(_cell(row[name]) for name in names), *cells, style=STYLE if row == best else None)
    parts: list[Text | Table] = [Text(str(found), style=STYLE), Text(), drawn]
    if has_islands:
        known = ((row["price"], row["token_worth"] is not None) for row in shown if row["status"] == PLANNED)
        parts += map(Text, [*sync_notes(known), GAP, *([KEPT] if any(row["plan_of"] for row in shown) else [])])
    reasons = [row["reason_if_none"] for row in rows if row["status"] != PLANNED]
    if reasons:
        parts += [Text(), Text("No plan", style=STYLE)]
        parts += [Text(f"{reasons.count(reason)} x {reason}") for reason in dict.fromkeys(reasons)]
    return Group(*parts)


def _header(name: str) -> str:
    """A key split into lines of at most `HEADER_WIDTH` characters: `clusters.ib.node.` above `nics[0].bandwidth`."""
    lines = [""]
    for part in re.split(r"(?<=[._ ])", name):
        if lines[-1] and len(lines[-1]) + len(part) > HEADER_WIDTH:
            lines.append("")
        lines[-1] += part
    return "\n".join(line.strip() for line in lines)


def _cell(value: Any) -> str:
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _no_numbers(row: Row, count: int) -> tuple[str, ...]:
    """Cells of a row without a plan."""
    return (*("-" for _ in range(count - 1)), f"{row['status']}, see below")


def _numbers(row: Row, every: set[str]) -> tuple[str, ...]:
    """Cells of `HEADERS`."""
    return (
        time_text(row["step_s"]), f"{row['samples_per_s']:.4g}", f"{row['tokens_per_s']:,.0f}", f"{row['mfu']:.1%}",
        f"{row['bubble_fraction']:.1%}", f"{row['upper_bound_fraction']:.1%}", _gap(row), _layout(row, every),
    )  # fmt: skip


def _numbers_with_sync(row: Row, every: set[str]) -> tuple[str, ...]:
    """Cells of `SYNC_HEADERS`."""
    worth = None if row["token_worth"] is None else (row["token_worth"], row["token_worth_low"])
    return *sync_cells(row["tokens_per_s"], worth, row["sync"], row["price"]), _gap(row), _layout(row, every)


def _gap(row: Row) -> str:
    return "-" if row["gap"] is None else f"{row['gap']:.1%}"


def _layout(row: Row, every: set[str]) -> str:
    """Degrees and schedule, and the clusters if the plan does not use all of them together; of islands, what all have in
    common."""
    keys = (("tp", "tp"), ("pp", "pp"), ("dp", "dp"), *((key, key) for key in ("cp", "ep", "vpp")), ("microbatch_size", "mb"))
    parts = [
        f"{label} {row[key]}"
        for key, label in keys
        if row[key] is not None and (key not in ("cp", "ep", "vpp") or row[key] > 1)
    ]
    parts += [row["schedule"]] if row["schedule"] else []
    parts += [f"recompute {row['recompute']}"] if row["recompute"] not in ("none", None) else []
    where = "" if set(row["clusters"].split(" + ")) >= every else f": {row['clusters']}"
    return f"{', '.join(parts)}{where}{' *' if row['plan_of'] else ''}"


def studies(shown: Iterable[Study]) -> Table:
    """Table of shipped studies by the names that load them: topology, number of scenarios, varied keys."""
    drawn = grid("Studies", "name", "cluster", "scenarios", "layout")
    drawn.columns[1].header, drawn.columns[3].header = "topology", "varied"
    for one in shown:
        drawn.add_row(one.name, one.topology.name, str(len(one.scenarios)), ", ".join(one.keys))
    return drawn
