"""The style that all tables share."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

STYLE = "bold"
WRAPPED = {"layout": None, "why": None, "plan": None, "change": None, "sync": 16, "gives up": 7}
"""Columns whose cells become several lines on a narrow terminal -> their least width, if any."""
HEADS = "What rows and columns mean: docs/tables.md"
"""The line below tables of plans."""

TIMES_FROM = 10.0
"""Ratio from which on a slower step is told in times, not in percent (a guess of what can be read)."""


def grid(title: str, *columns: str) -> Table:
    """An empty table with text columns aligned left and number columns aligned right, by column name."""
    whole = Text(title, no_wrap=True, overflow="ignore")  # a title may be wider than its table
    table = Table(title=whole, title_justify="left", title_style=STYLE, box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for column in columns:
        left = column in {
            "cluster",
            "device",
            "nodes",
            "group",
            "NIC",
            "transport",
            "collective",
            "strategy",
            "layout",
            "why",
            "name",
            "change",
            "plan",
            "NICs",
            "interconnect",
            "sync",
        }
        table.add_column(
            column, justify="left" if left else "right", no_wrap=column not in WRAPPED, min_width=WRAPPED.get(column)
        )
    return table


def slower_text(ratio: float) -> str:
    """How much slower something is that takes `ratio` times as long: `9.3%`, from ten times on `636 times`."""
    return f"{ratio - 1:.1%}" if ratio < TIMES_FROM else f"{ratio:,.0f} times"
