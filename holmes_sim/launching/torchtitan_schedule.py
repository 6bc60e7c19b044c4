"""Schedules of a pipeline as torchtitan takes them: by torch's name, or as a CSV file of its runtime.

torch 2.14, distributed/pipelining/schedules.py: names of `get_schedule_class`, and `_PipelineScheduleRuntime._load_csv`."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from sim.plan import schedules
from sim.plan.parallel_config import ParallelConfig

TIMETABLE = "schedule.csv"
"""Name of the file of a schedule that torch has no name for."""
SCHEDULES = {"1f1b": "1F1B", "gpipe": "GPipe", "interleaved": "Interleaved1F1B", "dualpipev": "DualPipeV"}
"""Our schedule -> torch's name (get_schedule_class)."""


def has_timetable(config: ParallelConfig) -> bool:
    """Whether torch does not have the schedule by name."""
    microbatches = config.num_microbatches[0]
    if config.pp == 1:
        return False
    if config.schedule == "1f1b":
        return microbatches < config.pp
    return config.schedule not in SCHEDULES or (config.schedule == "interleaved" and microbatches == config.pp)


def timetable(config: ParallelConfig) -> str:
    """The schedule in torch's notation: `0F3` is the forward of stage 0 for microbatch 3; one row per pipeline rank."""
    split = schedules.get(config.schedule).SPLITS_BACKWARD
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for pp_rank in range(config.pp):
        program = schedules.actions(config.schedule, pp_rank, config.pp, config.num_microbatches[0], config.vpp)
        writer.writerow(f"{a.stage}{'I' if split and a.kind == 'B' else a.kind}{a.microbatch}" for a in program)
    return text.getvalue()


def assumed(config: ParallelConfig) -> Iterator[str]:
    """Where a run of a schedule with pairs of a forward and a backward differs from the plan's step: torch runs the passes of a
    pair (OVERLAP_F_B) one after the other (`_PipelineScheduleRuntime._step_microbatches`)."""
    if schedules.is_paired(config.schedule) and config.ep > 1:
        yield (
            f"Schedule {config.schedule}: torch runs the two passes of a pair one after the other, and each waits for its "
            "exchanges of tokens; in the plan these run beside the other pass."
        )
