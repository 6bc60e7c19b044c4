"""Measured runs against predictions that no fit of the run's own numbers made, as `python -m benchmarks residuals` writes them.

`residuals.csv` has a row for each run of validation/, validation/layouts and validation/new_software. Column `default` is
measured / predicted with one set of constants for all software, fitted without the run's source; the columns `honest...` are
measured / predicted with the fits of `holmes-sim validate --stack honest`, `honest-tp`, `honest-pp` and `honest-nodes`. New
software has stacks without fits, and none of these columns.
"""

from __future__ import annotations

import csv
import functools
from dataclasses import dataclass
from importlib.resources import files

from sim.units import Seconds

FILE = "residuals.csv"
"""Name of the data file in this package."""
DEFAULT = "default"
"""Column of the predictions with the default stack."""


@dataclass(frozen=True, slots=True)
class Residual:
    """A measured run: its source, what describes its layout, and measured / predicted step by column that it has (`ratios`).

    Runs of one `choice` differ in their layout only: they have the same source, stack, workload, device types and number of
    nodes.
    """

    source: str
    choice: int
    device: str
    tp: int
    pp: int
    nodes: int
    measured_s: Seconds
    ratios: tuple[tuple[str, float], ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns with a prediction of this run."""
        return tuple(name for name, _ in self.ratios)

    def ratio(self, column: str) -> float:
        """Measured / predicted step of one of its `columns`."""
        return dict(self.ratios)[column]


@functools.cache
def residuals() -> tuple[Residual, ...]:
    """All runs of the data file."""
    text = (files("holmes_sim") / FILE).read_text(encoding="utf-8")
    lines = (line for line in text.splitlines() if not line.startswith("#"))
    return tuple(_residual(row) for row in csv.DictReader(lines))


def _residual(row: dict[str, str]) -> Residual:
    ratios = tuple(
        (name, float(value)) for name, value in row.items() if value and (name == DEFAULT or name.startswith("honest"))
    )
    choice, tp, pp, nodes = (int(row[name]) for name in ("choice", "tp", "pp", "nodes"))
    return Residual(row["source"], choice, row["device"], tp, pp, nodes, float(row["measured_s"]), ratios)
