"""The closed form of a step with attention and experts on two sets of ranks: begin and end of each task on an idle network.

A task begins when the task before it on its stream and the tasks that it depends on have ended: the longest path through the
graph of tasks. Exchanges on unlike streams are taken not to share links, which holds where attention ranks keep no experts:
dispatch then leaves attention ranks and enters expert ranks, and combine the reverse. Where they keep some, or gradients and
tokens meet, `sim.disaggregation.simulation` shares the links."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sim.disaggregation.tasks import Task
from sim.units import Seconds


def timetable(tasks: Sequence[Task], seconds: Callable[[Task], Seconds]) -> list[tuple[Seconds, Seconds]]:
    """(begin, end) of each task of `sim.disaggregation.tasks`, of which each takes `seconds`."""
    free = dict[str, Seconds]()
    times: list[tuple[Seconds, Seconds]] = []
    for task in tasks:
        begin = max([free.get(task.stream, 0.0), *(times[other][1] for other in task.after)])
        end = free[task.stream] = begin + seconds(task)
        times.append((begin, end))
    return times


def stream_ends(tasks: Sequence[Task], times: Sequence[tuple[Seconds, Seconds]]) -> dict[str, Seconds]:
    """Stream -> end of its last task."""
    return {task.stream: end for task, (_, end) in zip(tasks, times, strict=True)}
