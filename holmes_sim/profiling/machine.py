"""The device at hand: a GPU that torch knows as `cuda` (NVIDIA's, or AMD's by ROCm), else the CPU; and its stopwatch.

The paths of GPUs were written without one at hand, and have not been run."""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch

from holmes_sim.profiling.spread import Spread
from sim.units import MILLI, Bytes, Seconds

ROUNDS = 40
"""The most repetitions of one measurement."""
FEWEST = 5
WARM = 2
"""Repetitions that are not counted: kernels are loaded and memory is fetched in them."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A device as torch names it, and what it says of itself. `vendor` tells whose collective library it has."""

    torch_device: str
    label: str
    vendor: str
    compute_units: int
    memory: Bytes

    @property
    def is_gpu(self) -> bool:
        """Whether work runs beside the host."""
        return self.torch_device != "cpu"

    @property
    def software(self) -> str:
        """`torch 2.13.0+cpu, 1 thread`."""
        threads = torch.get_num_threads()
        beside = "" if self.is_gpu else f", {threads} thread{'s' if threads > 1 else ''}"
        return f"torch {torch.__version__}{beside}"


def at_hand() -> Machine:
    """The first GPU, or the CPU."""
    if not torch.cuda.is_available():
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return Machine("cpu", _cpu(), "cpu", torch.get_num_threads(), float(memory))
    found = torch.cuda.get_device_properties(0)
    vendor = "amd" if torch.version.hip else "nvidia"
    return Machine("cuda", str(found.name), vendor, int(found.multi_processor_count), float(found.total_memory))


def _cpu() -> str:
    """The CPU's name as Linux tells it, else as Python does."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        text = ""
    named = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return named[1].strip() if named else platform.processor() or platform.machine()


class Stopwatch:
    """Marks moments in the order of the device's work: events on a GPU, so that the host may run ahead."""

    def __init__(self, machine: Machine):
        self.machine = machine
        self.moments: list[Seconds] = []
        self.events: list[torch.cuda.Event] = []

    def mark(self) -> None:
        """Now, or when the device gets here."""
        if self.machine.is_gpu:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self.events.append(event)
        else:
            self.moments.append(time.perf_counter())

    def laps(self) -> list[Seconds]:
        """Seconds from each mark to the next, and begin anew."""
        if self.machine.is_gpu:
            torch.cuda.synchronize()
            laps = [a.elapsed_time(b) * MILLI for a, b in pairwise(self.events)]
        else:
            laps = [b - a for a, b in pairwise(self.moments)]
        self.moments, self.events = [], []
        return laps


def repeated(round_: Callable[[], list[Seconds]], budget: Seconds) -> list[Spread]:
    """Each lap of a round, measured in as many rounds as fit into the budget: at least `FEWEST`, at most `ROUNDS`."""
    for _ in range(WARM):
        round_()
    found: list[list[Seconds]] = []
    start = time.perf_counter()
    while len(found) < FEWEST or (len(found) < ROUNDS and time.perf_counter() - start < budget):
        found.append(round_())
    return [Spread.of(lap) for lap in zip(*found, strict=True)]


def timed(machine: Machine, work: Callable[[], object], budget: Seconds, times: int = 1) -> Spread:
    """Seconds of some work, done `times` times between two marks."""
    watch = Stopwatch(machine)

    def round_() -> list[Seconds]:
        watch.mark()
        for _ in range(times):
            work()
        watch.mark()
        return [lap / times for lap in watch.laps()]

    return repeated(round_, budget)[0]
