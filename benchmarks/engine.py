"""Events a second of the engine against raw SimPy, in one run: GPT-3 175B on 1,024 A100, the step of `benchmarks.scale`.

Raw SimPy is processes that wait for timeouts and do nothing else: what any engine on SimPy stays below. `at length` plays every
microbatch; `told` is how the engine does it, which plays until the step repeats and tells the rest: the same events (those of
the long way) in less time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import simpy

from benchmarks import least
from benchmarks.scale import UNIFORM, plan
from sim.engine.engine import simulate, simulate_at_length
from sim.engine.symmetry import fold

PROCESSES, TIMEOUTS = 16, 10_000


@dataclass(frozen=True, slots=True)
class Row:
    """A way to play events: how many, in how many seconds, and the share of raw SimPy's rate."""

    name: str
    events: int
    seconds: float
    share: float

    @property
    def rate(self) -> float:
        """Events a second."""
        return self.events / self.seconds


def raw() -> int:
    """Play timeouts; how many events that was."""

    def wait(env: simpy.Environment) -> Generator[simpy.Event, None, None]:
        for _ in range(TIMEOUTS):
            yield env.timeout(1.0)

    env = simpy.Environment()
    for _ in range(PROCESSES):
        env.process(wait(env))
    env.run()
    return PROCESSES * TIMEOUTS


def measure() -> list[Row]:
    """Raw SimPy, the engine at length, and the engine."""
    with tempfile.TemporaryDirectory() as folder:
        given = plan(UNIFORM, 1024, Path(folder))
    folding = fold(given)
    events, whole = raw(), simulate_at_length(given, folding).events
    seconds = least(raw)
    rows = [Row("raw SimPy", events, seconds, 1.0)]
    for name, way in (("engine, at length", simulate_at_length), ("engine, told", simulate)):
        took = least(lambda way=way: way(given, folding))  # type: ignore[misc]
        rows.append(Row(name, whole, took, whole / took / (events / seconds)))
    return rows
