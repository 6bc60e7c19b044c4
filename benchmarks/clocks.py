"""Whether plans depend on the speed of the machine: `python -m benchmarks clocks [TOPOLOGY ...]`.

Each shipped topology of up to `LARGEST` devices is planned twice: with a clock that runs fifty times slower than time and two
idle cores, and with one that runs four times faster and one core, and so ten times the time limit. What counts its work gives
the same plan, bounds and unlike pipelines both times; what looks at the clock shows as a difference. Twenty minutes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from unittest.mock import patch

from holmes_sim import commands
from holmes_sim.results import Planned
from planner.placement.simulation import step
from sim.units import Seconds

LARGEST = 128
"""Number of devices up to which topologies are planned without being named."""
LIMIT_S: Seconds = 50.0
"""Time limit of the command's default."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine as the planner sees it: how fast its clock runs beside time, its idle cores, and the time limit."""

    clock: float
    cores: int
    limit_s: Seconds

    @contextmanager
    def running(self) -> Iterator[None]:
        """Within a `with` statement, clocks and cores are those of this machine, also in forked processes."""
        with ExitStack() as patches:
            for name in ("monotonic", "perf_counter"):
                real, begun = getattr(time, name), getattr(time, name)()
                told = lambda real=real, begun=begun: begun + self.clock * (real() - begun)  # noqa: E731
                patches.enter_context(patch.object(time, name, told))
            patches.enter_context(patch.object(os, "cpu_count", lambda: self.cores))
            patches.enter_context(patch.object(os, "getloadavg", lambda: (0.0, 0.0, 0.0)))
            yield


FAST, SLOW = Machine(1 / 50, 2, LIMIT_S), Machine(4.0, 1, 10 * LIMIT_S)


@dataclass(frozen=True, slots=True)
class Compared:
    """A topology, and what both machines find: `fast` and `slow`."""

    name: str
    fast: Planned
    slow: Planned

    @property
    def differences(self) -> tuple[str, ...]:
        """What differs, in words."""
        return tuple(name for name, one, other in zip(PARTS, _parts(self.fast), _parts(self.slow), strict=True) if one != other)


PARTS = ("plan", "certificate", "unlike pipelines", "their bound")
"""What is compared."""


def _parts(one: Planned) -> tuple[object, ...]:
    """The values of `PARTS`."""
    plan, replicas = one.plan, one.replicas
    pipelines = None if replicas is None or replicas.plan is None else replicas.plan.pipelines
    bound = None if replicas is None else replicas.bound_s
    return (plan.config, plan.stages, plan.placement), plan.certificate, pipelines, bound


def compared(name: str) -> Compared:
    """The plans of a topology on both machines."""
    found = list[Planned]()
    for machine in (FAST, SLOW):
        with machine.running():
            found.append(commands.plan(commands.load(name), time_limit=machine.limit_s))
    return Compared(name, *found)


def table(every: Iterable[Compared]) -> Iterator[str]:
    """A Markdown table with a row for each topology, and a line about all of them."""
    yield from ("| topology | step | lower bound | what the clock decides |", "| --- | --- | --- | --- |")
    many, unlike = 0, list[str]()
    for one in every:
        many, unlike = many + 1, [*unlike, *([one.name] if one.differences else [])]
        certificate = one.fast.plan.certificate
        bound = f"{certificate.lower_bound_s:.4g}" if certificate is not None else "-"
        yield f"| {one.name} | {step(one.fast.plan):.4g} | {bound} | {', '.join(one.differences) or '-'} |"
    yield f"{many} topologies; the clock decides on: {', '.join(unlike) or 'none'}."


def show(names: list[str]) -> None:
    """Print the table, each row when it is known."""
    small = (name for name in commands.shipped_topologies() if commands.load(name).fleet.devices <= LARGEST)
    for line in table(map(compared, names or small)):
        print(line, flush=True)
