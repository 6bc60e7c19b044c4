"""Tables of a sweep: one row per scenario, and why some have no plan."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from holmes_sim.printing.tables import STYLE, grid
from holmes_sim.sweeping import table
from holmes_sim.sweeping.study import Study
from holmes_sim.sweeping.sweep import Swept
from holmes_sim.sweeping.worker import PLANNED, Row
from sim.units import time_text

MAX_ROWS = 40
"""Maximum number of rows that are printed; of more, the rows with the most tokens per second."""
HEADER_WIDTH = 18
"""Maximum characters per line in the header of a varied key, if the key can be split."""
HEADERS = ("step", "samples/s", "tokens/s", "MFU", "bubble", "of compute-\nonly speed", "gap", "layout")


def swept(found: Swept) -> Group:
    """Table of the scenarios of a study, all or the best ones, and each reason for a missing plan once."""
    rows, best = found.rows, found.best
    shown, title = rows, "Scenarios"
    if len(rows) > MAX_ROWS:
        planned = [row for row in rows if row["status"] == PLANNED]
        shown = sorted(planned, key=lambda row: -row["tokens_per_s"])[:MAX_ROWS]
        title = f"Scenarios, {len(shown)} of {len(rows)}, most tokens/s first"
    every = {cluster.name for cluster in found.study.topology.fleet.clusters}
    names = tuple(table.varied(found.study))
    drawn = grid(title, *map(_header, names), *HEADERS)
    for row in shown:
        drawn.add_row(*(_cell(row[name]) for name in names), *_numbers(row, every), style=STYLE if row == best else None)
    parts: list[Text | Table] = [Text(str(found), style=STYLE), Text(), drawn]
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


def _numbers(row: Row, every: set[str]) -> tuple[str, ...]:
    if row["status"] != PLANNED:
        return (*("-" for _ in HEADERS[1:]), f"{row['status']}, see below")
    return (
        time_text(row["step_s"]), f"{row['samples_per_s']:.4g}", f"{row['tokens_per_s']:,.0f}", f"{row['mfu']:.1%}",
        f"{row['bubble_fraction']:.1%}", f"{row['upper_bound_fraction']:.1%}",
        "-" if row["gap"] is None else f"{row['gap']:.1%}",
        _layout(row, every),
    )  # fmt: skip


def _layout(row: Row, every: set[str]) -> str:
    """Degrees and schedule, and the clusters if the plan does not use all of them."""
    more = "".join(f", {key} {row[key]}" for key in ("cp", "ep", "vpp") if row[key] > 1)
    full = "" if row["recompute"] == "none" else f", recompute {row['recompute']}"
    where = "" if set(row["clusters"].split(" + ")) >= every else f": {row['clusters']}"
    return f"tp {row['tp']}, pp {row['pp']}, dp {row['dp']}{more}, mb {row['microbatch_size']}, {row['schedule']}{full}{where}"


def studies(shown: Iterable[Study]) -> Table:
    """Table of shipped studies by the names that load them: topology, number of scenarios, varied keys."""
    drawn = grid("Studies", "name", "cluster", "scenarios", "layout")
    drawn.columns[1].header, drawn.columns[3].header = "topology", "varied"
    for one in shown:
        drawn.add_row(one.name, one.topology.name, str(len(one.scenarios)), ", ".join(one.keys))
    return drawn
