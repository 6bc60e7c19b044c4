"""Events per second of the engine and of raw SimPy: one step of GPT-3 175B on 1,024 A100, as in `benchmarks.scale`.

Raw SimPy means processes that only wait for timeouts, an upper limit for any engine on SimPy. The row `every microbatch` is a
simulation without steady state. The row `steady state` is the normal simulation, which extrapolates repeating periods; its rate
counts the same number of events, extrapolated ones included.
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
    """Number of events, the seconds that they take, and the share of raw SimPy's rate."""

    name: str
    events: int
    seconds: float
    share: float

    @property
    def rate(self) -> float:
        """Events per second."""
        return self.events / self.seconds


def raw() -> int:
    """Run processes that wait for timeouts; the number of events."""

    def wait(env: simpy.Environment) -> Generator[simpy.Event, None, None]:
        for _ in range(TIMEOUTS):
            yield env.timeout(1.0)

    env = simpy.Environment()
    for _ in range(PROCESSES):
        env.process(wait(env))
    env.run()
    return PROCESSES * TIMEOUTS


def measure() -> list[Row]:
    """Rows of raw SimPy, the engine without steady state, and the engine with it."""
    with tempfile.TemporaryDirectory() as folder:
        given = plan(UNIFORM, 1024, Path(folder))
    folding = fold(given)
    events, whole = raw(), simulate_at_length(given, folding).events
    seconds = least(raw)
    rows = [Row("raw SimPy", events, seconds, 1.0)]
    for name, way in (("every microbatch", simulate_at_length), ("steady state", simulate)):
        took = least(lambda way=way: way(given, folding))  # type: ignore[misc]
        rows.append(Row(name, whole, took, whole / took / (events / seconds)))
    return rows
