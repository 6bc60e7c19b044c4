"""Findings of a check: file, line and key, then what is odd, what it means for plans, and what would be right."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.text import Text

from holmes_sim import checks
from holmes_sim.checking import Checked
from holmes_sim.printing.tables import STYLE

INDENT = 9
"""Columns in front of the texts of a finding, which hold their labels."""


@dataclass(frozen=True, slots=True)
class _Labelled:
    """A text behind a label, wrapped at the width of the console."""

    label: str
    text: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        wrapped = textwrap.wrap(self.text, max(options.max_width - INDENT, 20), break_on_hyphens=False)
        for number, line in enumerate(wrapped):
            yield Text(f"{f'  {self.label}:' if number == 0 else '':<{INDENT}}{line}")


def checked(found: Checked) -> RenderableType:
    """All findings, or one line that says that there is none."""
    count = len(checks.names())
    if not found.found:
        return Text(f"{found.document.name}: nothing is odd ({count} checks).")
    parts: list[RenderableType] = []
    for _, finding in found.found:
        parts.append(Text(found.where(finding), style=STYLE))
        parts += [_Labelled("odd", finding.odd), _Labelled("means", finding.means), _Labelled("right", finding.better)]
    remarks = "1 remark" if len(found.found) == 1 else f"{len(found.found)} remarks"
    return Group(*parts, Text(f"{remarks} ({count} checks). The file is valid."))
