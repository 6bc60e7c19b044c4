"""The device of this machine, and its stopwatch: a GPU that torch calls `cuda` (NVIDIA, or AMD with ROCm), otherwise the CPU.

The code paths for NVIDIA have run on an H100, those for AMD on no GPU.
"""

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

from holmes_sim.profiling.timings import Timings
from sim.units import MILLI, Bytes, Seconds

ROUNDS = 40
"""Maximum number of repetitions of one measurement. A guess."""
FEWEST = 5
WARM = 2
"""Repetitions that are not counted, in which kernels are loaded and memory is allocated."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A device with torch's name for it and the properties that it reports. `vendor` determines its collective library."""

    torch_device: str
    label: str
    vendor: str
    compute_units: int
    memory: Bytes

    @property
    def is_gpu(self) -> bool:
        """Whether work runs asynchronously to the host."""
        return self.torch_device != "cpu"

    @property
    def software(self) -> str:
        """Software versions, for example `torch 2.13.0+cpu, 1 thread`."""
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


def count() -> int:
    """Number of GPUs of this machine that torch sees."""
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def release() -> None:
    """Give memory that torch keeps for reuse back to the GPU, for other processes."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _cpu() -> str:
    """Name of the CPU from Linux, otherwise from Python."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        text = ""
    named = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return named[1].strip() if named else platform.processor() or platform.machine()


class Stopwatch:
    """Time stamps in the order of the device's work. On a GPU these are CUDA events: the host can launch ahead."""

    def __init__(self, machine: Machine):
        self.machine = machine
        self.moments: list[Seconds] = []
        self.events: list[torch.cuda.Event] = []

    def mark(self) -> None:
        """Record a time stamp when the device reaches this point."""
        if self.machine.is_gpu:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self.events.append(event)
        else:
            self.moments.append(time.perf_counter())

    def laps(self) -> list[Seconds]:
        """Seconds between consecutive time stamps; then start anew."""
        if self.machine.is_gpu:
            torch.cuda.synchronize()
            laps = [a.elapsed_time(b) * MILLI for a, b in pairwise(self.events)]
        else:
            laps = [b - a for a, b in pairwise(self.moments)]
        self.moments, self.events = [], []
        return laps


def repeated(round_: Callable[[], list[Seconds]], budget: Seconds) -> list[Timings]:
    """Timings of each lap of a round. Rounds repeat for `budget` seconds: at least `FEWEST`, at most `ROUNDS` times."""
    for _ in range(WARM):
        round_()
    found: list[list[Seconds]] = []
    start = time.perf_counter()
    while len(found) < FEWEST or (len(found) < ROUNDS and time.perf_counter() - start < budget):
        found.append(round_())
    return [Timings.of(lap) for lap in zip(*found, strict=True)]


def timed(machine: Machine, work: Callable[[], object], budget: Seconds, times: int = 1) -> Timings:
    """Seconds of `work`, executed `times` times between two time stamps. On a GPU several times are one CUDA graph, so that
    the time in which the host launches kernels does not count."""
    watch = Stopwatch(machine)
    every = _graph(work, times).replay if machine.is_gpu and times > 1 else lambda: [work() for _ in range(times)]

    def round_() -> list[Seconds]:
        watch.mark()
        every()
        watch.mark()
        return [lap / times for lap in watch.laps()]

    return repeated(round_, budget)[0]


def _graph(work: Callable[[], object], times: int) -> torch.cuda.CUDAGraph:
    """A CUDA graph of `times` executions. Libraries allocate their workspaces before it is captured."""
    for _ in range(WARM):
        work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(times):
            work()
    return graph
