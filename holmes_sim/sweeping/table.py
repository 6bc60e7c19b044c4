"""The table of a sweep: a row for each scenario, a column for each varied key, then what came of it. Units stand in the names.

A key whose values are quantities of one kind is a column of numbers in the unit of the first of them:
`links[0].bandwidth (Gbit/s)`.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd

from holmes_sim import files
from holmes_sim.sweeping.answering import Row
from holmes_sim.sweeping.study import Study
from sim import units
from sim.errors import HolmesError

ENDINGS = ("csv", "parquet")
FLOAT, WHOLE, TEXT, TRUTH = "float64", "Int64", "string", "boolean"
ANSWER = {
    "step_s": FLOAT, "samples_per_s": FLOAT, "tokens_per_s": FLOAT, "tflops_per_device": FLOAT, "mfu": FLOAT,
    "bubble_fraction": FLOAT, "exposed_communication_s": FLOAT, "upper_bound_fraction": FLOAT, "usd_per_token": FLOAT,
    "joules_per_token": FLOAT, "gap": FLOAT, "status": TEXT, "tp": WHOLE, "pp": WHOLE, "dp": WHOLE, "cp": WHOLE, "ep": WHOLE,
    "vpp": WHOLE, "microbatch_size": WHOLE, "schedule": TEXT, "recompute": TEXT, "zero_stage": WHOLE, "devices": WHOLE,
    "clusters": TEXT, "planning_s": FLOAT, "reason_if_none": TEXT,
}  # fmt: skip
"""Columns behind those of the varied keys, and what they hold."""


def ending(path: Path) -> str:
    """The kind of table that a path names, one of `ENDINGS`. Raises HolmesError for any other, or for want of pyarrow."""
    found = path.suffix[1:].lower()
    if found not in ENDINGS:
        right = " or ".join(f".{known}" for known in ENDINGS)
        raise HolmesError(f"{path}: a table ends in {right}, not in {path.suffix or 'nothing'}")
    if found == "parquet" and find_spec("pyarrow") is None:
        raise HolmesError(f"{path}: Parquet needs pyarrow; pip install 'holmes-sim[parquet]', or write a .csv")
    return found


def varied(study: Study) -> dict[str, tuple[Any, ...]]:
    """Column -> a cell for each scenario, of every varied key; None where a scenario leaves the key as it is."""
    found: dict[str, tuple[Any, ...]] = {}
    for key in study.keys:
        cells = [scenario.values.get(key) for scenario in study.scenarios]
        quantities = units.common_unit(cell for cell in cells if cell is not None)
        if quantities is not None:
            numbers = iter(quantities[1])
            found[f"{key} ({quantities[0]})"] = tuple(None if cell is None else next(numbers) for cell in cells)
        else:
            plain = _kind(cells) != TEXT
            found[key] = tuple(cell if plain or cell is None else _text(cell) for cell in cells)
    return found


def rows(study: Study, answers: Sequence[Row | None]) -> list[Row]:
    """Rows of the scenarios that have an answer, in the order of the study; what a row cannot have is None."""
    columns = varied(study)
    return [
        {name: cells[index] for name, cells in columns.items()} | {name: answer.get(name) for name in ANSWER}
        for index, answer in enumerate(answers)
        if answer is not None
    ]


def frame(study: Study, answers: Sequence[Row | None]) -> pd.DataFrame:
    """The rows as a pandas frame with typed columns."""
    kinds = {name: _kind(cells) for name, cells in varied(study).items()} | ANSWER
    found = rows(study, answers)
    return pd.DataFrame({name: pd.Series([row[name] for row in found], dtype=kind) for name, kind in kinds.items()})


def _text(cell: Any) -> str:
    return cell if isinstance(cell, str) else json.dumps(cell)


def _kind(cells: Sequence[Any]) -> str:
    given = {type(cell) for cell in cells if cell is not None}
    if given == {bool}:
        return TRUTH
    if given == {int}:
        return WHOLE
    return FLOAT if given and given <= {int, float} else TEXT


def write(path: Path, content: pd.DataFrame) -> None:
    """Write a table by the ending of its path, whole or not at all. Raises HolmesError where it cannot be written."""
    if ending(path) == "csv":
        files.write(path, content.to_csv(index=False))
        return
    written = io.BytesIO()
    content.to_parquet(written, engine="pyarrow", index=False)
    files.write(path, written.getvalue())
