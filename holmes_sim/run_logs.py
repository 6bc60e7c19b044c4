"""Step times in the logs of training programs: Megatron-LM (also Megatron-Bridge, Megatron-DeepSpeed) and torchtitan.

Megatron-LM prints `iteration 20/ 100 | ... | elapsed time per iteration (ms): 1147.6 | ... | global batch size: 16 |`, a mean
over the steps since the line before (training_log in megatron/training/training.py). torchtitan prints `step: 20  loss: 7.18
... tps: 11,481 ...`, tokens per second and device since the line before (torchtitan/components/metrics.py, at 00fbaaf)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from statistics import median

from sim.errors import HolmesError
from sim.plan.plan import Plan
from sim.units import MILLI, Seconds

WARM_UP = 5
"""Steps whose times are left out, with the first line of a log, which may be a mean over steps of a warm-up. Guess: kernels are
chosen and communicators made in the first steps."""
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
MEGATRON = re.compile(r"\biteration\s+(\d+)\s*/.*?elapsed time per iteration \(ms\):\s*([\d.]+)")
BATCH = re.compile(r"global batch size:\s*(\d+)")
TORCHTITAN = re.compile(r"(?<!validate )\bstep:\s*(\d+)\s+loss:.*?\btps:\s*([\d,]+)")


@dataclass(frozen=True, slots=True)
class LoggedStep:
    """The median step time of a log, and the number of its lines."""

    seconds: Seconds
    lines: int


def step_of(text: str, plan: Plan, name: str) -> LoggedStep | None:
    """The median step time that a log of a run of a plan has after warm-up; None if it has no step times.

    `name` is the file in error messages. Raises HolmesError if all steps are warm-up, or of another batch than the plan's."""
    found: list[tuple[int, Seconds]] = []
    tokens = plan.workload.global_batch_size * plan.workload.seq_len
    for number, line in enumerate(COLOURS.sub("", text).splitlines(), 1):
        if match := MEGATRON.search(line):
            _check_batch(line, plan, f"{name}:{number}")
            found.append((int(match[1]), float(match[2]) * MILLI))
        elif match := TORCHTITAN.search(line):
            per_device = int(match[2].replace(",", ""))
            found.append((int(match[1]), tokens / (max(per_device, 1) * plan.config.world_size)))
    if not found:
        return None
    steady = [seconds for step, seconds in found[1:] if step > WARM_UP and seconds > 0]
    if not steady:
        raise HolmesError(
            f"{name}: no step time after warm-up; a log needs two lines with a step time, the second one after step {WARM_UP}"
        )
    return LoggedStep(median(steady), len(steady))


def _check_batch(line: str, plan: Plan, where: str) -> None:
    batch, wanted = BATCH.search(line), plan.workload.global_batch_size
    if batch and int(batch[1]) != wanted:
        raise HolmesError(f"{where}: global batch size: {batch[1]}; the plan of this folder has {wanted}")
