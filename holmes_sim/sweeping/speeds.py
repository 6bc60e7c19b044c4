"""By what scenarios of a sweep are compared: tokens per second, or effective ones where islands are allowed."""

from __future__ import annotations

from holmes_sim.sweeping.study import Study
from holmes_sim.sweeping.worker import Row
from planner.islands.allowed_sync import EXACT


def allows_islands(study: Study) -> bool:
    """Whether some scenario of a study allows islands."""
    return any(scenario.options.sync != EXACT for scenario in study.scenarios)


def speed(row: Row) -> float:
    """Effective tokens per second of a row with a plan; tokens per second where their worth is unknown."""
    effective, tokens = row["effective_tokens_per_s"], row["tokens_per_s"]
    return float(tokens if effective is None else effective)


def rank(row: Row) -> tuple[bool, float]:
    """What orders rows with a plan, the best last: a known worth goes before an unknown one."""
    return row["effective_tokens_per_s"] is not None, speed(row)
