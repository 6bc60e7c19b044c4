"""Table of a sweep: one row per scenario, one column per varied key, then the results. Column names contain the units.

A key whose values are quantities of one kind becomes a column of numbers in the unit of its first value: `links[0].bandwidth
(Gbit/s)`.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holmes_sim import files
from holmes_sim.sweeping.kept_plans import with_kept_plans
from holmes_sim.sweeping.study import Study
from holmes_sim.sweeping.worker import Row
from sim import units
from sim.errors import HolmesError

if TYPE_CHECKING:
    import pandas as pd

ENDINGS = ("csv", "parquet")
FLOAT, WHOLE, TEXT, TRUTH = "float64", "Int64", "string", "boolean"
"""Types of pandas columns."""
RESULT_COLUMNS = {
    "step_s": FLOAT, "samples_per_s": FLOAT, "tokens_per_s": FLOAT, "tflops_per_device": FLOAT, "mfu": FLOAT,
    "bubble_fraction": FLOAT, "exposed_communication_s": FLOAT, "upper_bound_fraction": FLOAT, "usd_per_token": FLOAT,
    "joules_per_token": FLOAT, "gap": FLOAT, "status": TEXT, "tp": WHOLE, "pp": WHOLE, "dp": WHOLE, "cp": WHOLE, "ep": WHOLE,
    "vpp": WHOLE, "microbatch_size": WHOLE, "schedule": TEXT, "recompute": TEXT, "zero_stage": WHOLE, "devices": WHOLE,
    "clusters": TEXT, "sync": TEXT, "inner_steps": WHOLE, "price": TEXT, "token_worth": FLOAT, "token_worth_low": FLOAT,
    "token_worth_high": FLOAT, "effective_tokens_per_s": FLOAT, "plan_of": TEXT, "planning_s": FLOAT, "reason_if_none": TEXT,
}  # fmt: skip
"""Columns after those of the varied keys, and their types."""


def ending(path: Path) -> str:
    """The format of a table, one of `ENDINGS`, from its path. Raises HolmesError for other endings, or if pyarrow is
    missing.
    """
    found = path.suffix[1:].lower()
    if found not in ENDINGS:
        right = " or ".join(f".{known}" for known in ENDINGS)
        raise HolmesError(f"{path}: a table ends in {right}, not in {path.suffix or 'nothing'}")
    if found == "parquet" and find_spec("pyarrow") is None:
        raise HolmesError(f"{path}: Parquet needs pyarrow; pip install 'holmes-sim[parquet]', or write a .csv")
    return found


def varied(study: Study) -> dict[str, tuple[Any, ...]]:
    """Column -> one cell per scenario, for every varied key; None if a scenario does not change the key."""
    found: dict[str, tuple[Any, ...]] = {}
    for key in study.keys:
        cells = [scenario.values.get(key) for scenario in study.scenarios]
        quantities = units.common_unit(cell for cell in cells if cell is not None)
        if quantities is not None:
            numbers = iter(quantities[1])
            found[f"{key} ({quantities[0]})"] = tuple(None if cell is None else next(numbers) for cell in cells)
        else:
            numeric = _kind(cells) != TEXT
            found[key] = tuple(cell if numeric or cell is None else _text(cell) for cell in cells)
    return found


def rows(study: Study, results: Sequence[Row | None]) -> list[Row]:
    """Rows of the scenarios that have a result, in the order of the study; missing values are None."""
    columns = varied(study)
    return [
        {name: cells[index] for name, cells in columns.items()} | {name: result.get(name) for name in RESULT_COLUMNS}
        for index, result in enumerate(with_kept_plans(study, results))
        if result is not None
    ]


def frame(study: Study, results: Sequence[Row | None]) -> pd.DataFrame:
    """The rows as a pandas frame with typed columns. pandas is imported only here, because it takes a quarter of a second."""
    import pandas as pd

    kinds = {name: _kind(cells) for name, cells in varied(study).items()} | RESULT_COLUMNS
    found = rows(study, results)
    return pd.DataFrame({name: pd.Series([row[name] for row in found], dtype=kind) for name, kind in kinds.items()})


def _text(cell: Any) -> str:
    """A cell as text."""
    return cell if isinstance(cell, str) else json.dumps(cell)


def _kind(cells: Sequence[Any]) -> str:
    """Type of a column."""
    given = {type(cell) for cell in cells if cell is not None}
    if given == {bool}:
        return TRUTH
    if given == {int}:
        return WHOLE
    return FLOAT if given and given <= {int, float} else TEXT


def write(path: Path, content: pd.DataFrame) -> None:
    """Write a table in the format of its ending, atomically. Raises HolmesError if it cannot be written."""
    if ending(path) == "csv":
        files.write(path, content.to_csv(index=False))
        return
    written = io.BytesIO()
    content.to_parquet(written, engine="pyarrow", index=False)
    files.write(path, written.getvalue())
