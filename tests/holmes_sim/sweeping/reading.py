"""Reads the table of a sweep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holmes_sim.sweeping.sweep import Swept


def without_seconds(found: Swept) -> list[Mapping[str, Any]]:
    """The rows of a sweep, without the seconds of planning, which differ from run to run."""
    return [{key: cell for key, cell in row.items() if key != "planning_s"} for row in found.rows]
