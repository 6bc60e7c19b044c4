"""How busy the cores of this machine are while the lab measures, from /proc/stat: a measurement on busy cores says little."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from sim.units import Seconds

EVERY: Seconds = 0.1
"""Seconds between two samples."""
MOST_BUSY = 0.9
"""Share of the cores' time above which a measurement is not valid (a guess: above it, a rank that is due to send has to wait
for a core)."""
ENOUGH_FREE = 0.5
"""The default scale is raised until the cores are busy for at most this share of the time."""
FIELDS = 8
"""user, nice, system, idle, iowait, irq, softirq, steal (proc(5)); guest time is part of user."""


@dataclass(frozen=True, slots=True)
class Load:
    """Shares of all cores' time: `busy` with any program of this machine, `stolen` by the host of a virtual machine, and
    `ranks`: the part of `busy` that the ranks of the lab used, None where it was not counted."""

    busy: float
    stolen: float
    ranks: float | None = None

    @property
    def is_valid(self) -> bool:
        """Whether the cores had enough time left for the ranks."""
        return self.busy + self.stolen <= MOST_BUSY

    @property
    def by_whom(self) -> str:
        """Who used the cores, as part of a sentence; empty where that was not counted."""
        return "" if self.ranks is None else f", {self.ranks:.0%} with the ranks"

    @property
    def why_not(self) -> str:
        """Why a measurement is not valid, as a sentence; empty if it is."""
        if self.is_valid:
            return ""
        stolen = f" ({self.stolen:.0%} by other virtual machines)" if self.stolen >= 0.01 else ""
        return (
            f"This measurement is not valid: the cores were busy {self.busy + self.stolen:.0%} of the time{stolen}. End other "
            "programs, or give a larger --scale."
        )


def ticks(text: str) -> tuple[int, int, int]:
    """(all, busy, stolen) ticks of all cores since the start of the machine, from the text of /proc/stat."""
    values = [int(word) for word in text.split("\n", 1)[0].split()[1 : 1 + FIELDS]]
    values += [0] * (FIELDS - len(values))
    stolen = values[7]
    return sum(values), sum(values) - values[3] - values[4] - stolen, stolen


def _now() -> tuple[int, int, int]:
    return ticks(Path("/proc/stat").read_text(encoding="ascii"))


class Sampler:
    """Samples the load in a thread of its own, as a context manager."""

    def __init__(self, read: Callable[[], tuple[int, int, int]] = _now):
        self._read = read
        self._samples: list[tuple[Seconds, tuple[int, int, int]]] = []
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            self._samples.append((time.monotonic(), self._read()))
            if self._done.wait(EVERY):
                self._samples.append((time.monotonic(), self._read()))
                return

    def over(self, seconds: Seconds) -> Load:
        """The load in the last `seconds` before the end, in which the measured steps ran."""
        end, last = self._samples[-1]
        first = next((read for at, read in reversed(self._samples) if at <= end - seconds), self._samples[0][1])
        whole, busy, stolen = (b - a for a, b in zip(first, last, strict=True))
        return Load(busy / whole, stolen / whole) if whole else Load(0.0, 0.0)
