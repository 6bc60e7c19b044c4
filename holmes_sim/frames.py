"""Results as pandas data frames, with units in the column names, and as HTML for notebooks.

pandas is imported only when a frame is made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from sim.engine.timeline import Span, Timeline
from sim.hardware.cluster import Device
from sim.kernels import memory
from sim.plan.plan import Plan
from sim.results.report import PipelineRankReport

if TYPE_CHECKING:
    import pandas as pd

ROWS = 60
"""Maximum number of rows of a frame that a notebook shows."""


def table(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """A data frame of rows of plain data."""
    import pandas as pd

    return pd.DataFrame(rows)


def pipeline_ranks(plan: Plan, rows: Iterable[PipelineRankReport]) -> pd.DataFrame:
    """Data frame with one row per pipeline rank: clusters, layers, seconds of its rank that computes longest, and memory."""
    peaks, limits = memory.peak_memory(plan), memory.limits(plan)
    return table(
        [
            {
                "pp_rank": row.pp_rank,
                "clusters": " + ".join(dict.fromkeys(device.cluster for device in _devices(plan, row.pp_rank))),
                "layers": plan.layers[row.pp_rank],
                "compute_s": row.compute,
                "exposed_communication_s": row.exposed,
                "bubble_s": row.bubble,
                "peak_memory_bytes": peaks[row.pp_rank],
                "memory_limit_bytes": limits[row.pp_rank],
            }
            for row in rows
        ]
    )


def _devices(plan: Plan, pp_rank: int) -> tuple[Device, ...]:
    return plan.placement[plan.config.first_rank(pp_rank) : plan.config.first_rank(pp_rank + 1)]


def spans(timeline: Timeline) -> pd.DataFrame:
    """Data frame with one row per span of the simulated ranks; times are in seconds.

    Each simulated rank represents a class of equivalent ranks (symmetry reduction); column `ranks` has the size of the class.
    `stage` and `microbatch` are empty for spans without them."""
    import pandas as pd

    alike = {group[0]: len(group) for group in timeline.alike}
    found = pd.DataFrame(tuple(timeline.spans), columns=Span._fields).drop(columns="after")
    found = found.rename(columns={"start": "start_s", "end": "end_s"})
    found.insert(1, "ranks", found["rank"].map(alike))
    for column in ("stage", "microbatch"):
        found[column] = found[column].astype("Int64").mask(found[column] < 0)
    return found


def html(words: str, frame: pd.DataFrame) -> str:
    """HTML of a line of text and a table without its empty columns."""
    shown = frame.dropna(axis="columns", how="all")
    return f"<p>{escape(words)}</p>{shown.to_html(max_rows=ROWS, index=False, na_rep='')}"
