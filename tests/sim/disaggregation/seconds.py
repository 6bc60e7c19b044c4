"""Whole seconds of tasks, for literal timetables."""

from __future__ import annotations

from sim.disaggregation.tasks import Task

SECONDS = {
    ("A", False): 1, ("A", True): 2, ("E", False): 2, ("E", True): 4, ("X", False): 1, ("X", True): 2,
}  # fmt: skip
EXCHANGE_S = 0.5


def seconds(task: Task) -> float:
    """Seconds of a task: half a second for exchanges."""
    return SECONDS.get((task.kind, task.backward), EXCHANGE_S)
