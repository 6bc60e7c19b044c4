"""Seconds, gap and memory of `holmes-sim plan` on fleets of 96, of a thousand and of a hundred thousand devices.

Nodes have eight devices each, with equal numbers of nodes of each device type. 96 devices of three types train GPT 7.5B with a
batch of 768. 1,024 devices of four types (the mixed fleet of `benchmarks.scale`) and 100,352 devices of eight types train GPT-3
175B with the batch of `benchmarks.scale`. Each fleet is planned in a separate process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks import scale

EIGHT = (
    *scale.MIXED,
    ("b200-sxm-180gb", "nvlink5", "infiniband", "400 Gbit/s"),
    ("h800-sxm5-80gb", "nvlink4-h800", "roce", "200 Gbit/s"),
    ("a100-sxm4-40gb", "nvlink3", "infiniband", "100 Gbit/s"),
    ("h100-pcie-80gb", "pcie5", "ethernet", "100 Gbit/s"),
)
FLEETS = ((96, scale.MIXED[:3], "gpt-7.5b", 768), (1024, scale.MIXED, "", 0), (100_352, EIGHT, "", 0))
"""(devices, node types, model, batch) of every fleet; without a model the workload of `benchmarks.scale`."""
TIME_LIMIT = 30.0
"""Time limit of a search in seconds."""


@dataclass(frozen=True, slots=True)
class Row:
    """Planning of one fleet: wall and CPU seconds, gap, step of the plan in seconds, peak memory in bytes."""

    devices: int
    kinds: int
    seconds: float
    cpu_seconds: float
    gap: float
    step_s: float
    peak_bytes: float


def measure(fleets: tuple[tuple[int, tuple[tuple[str, str, str, str], ...], str, int], ...] = FLEETS) -> list[Row]:
    """Plan every fleet with the command line, each in a new process."""
    rows = []
    for devices, kinds, model, batch in fleets:
        with tempfile.TemporaryDirectory() as folder:
            given = Path(folder) / "topology.yaml"
            given.write_text(scale.topology(kinds, devices), encoding="utf-8")
            rows.append(
                _row(devices, len(kinds), given, ("--model", model, "--global-batch-size", str(batch)) if model else ())
            )
    return rows


def _row(devices: int, kinds: int, given: Path, options: tuple[str, ...]) -> Row:
    command = [sys.executable, "-m", "holmes_sim.cli", "plan", str(given), *options, "--time-limit", str(TIME_LIMIT), "--json"]
    begun = time.perf_counter()
    with (given.parent / "result.json").open("w+", encoding="utf-8") as result:
        process = subprocess.Popen(command, stdout=result)
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begun
        process.returncode = os.waitstatus_to_exitcode(status)
        if status:
            raise SystemExit(f"planning {devices} devices of {kinds} kinds failed")
        result.seek(0)
        plan = json.load(result)
    peak = used.ru_maxrss * 1024.0  # kibibytes on Linux
    gap, step = plan["certificate"]["gap"], plan["prediction"]["step_s"]
    return Row(devices, kinds, seconds, used.ru_utime + used.ru_stime, gap, step, peak)
