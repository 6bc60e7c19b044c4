"""Data of the report of a plan of islands: simulated inner steps and outer periods, and how to launch it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holmes_sim import commands, exporters
from holmes_sim.islands import SimulatedIslands, simulate_islands
from holmes_sim.launchable import MOST
from holmes_sim.launching import environment, hosts
from holmes_sim.reporting.contents import MOST_LAUNCHED, LaunchTarget
from holmes_sim.results import Simulated
from sim.kernels import memory
from sim.plan.islands import IslandsPlan, IslandsPrediction


@dataclass(frozen=True, slots=True)
class IslandsContents:
    """A plan of islands and all data of its page; `file` is the path of the plan for command lines.

    run         simulated outer periods
    steps       simulated inner step of each island, without exchanges
    prediction  that of the plan, or that of the new simulation if the plan has none
    targets     targets that launch islands; empty for more than `holmes_sim.launchable.MOST` ranks
    assumed     assumptions about hosts that the topology does not specify"""

    file: str
    plan: IslandsPlan
    run: SimulatedIslands
    steps: tuple[Simulated, ...]
    prediction: IslandsPrediction
    targets: tuple[LaunchTarget, ...]
    assumed: tuple[str, ...]


def gather_islands(
    plan: IslandsPlan, file: str = "islands.json", progress: Callable[[str], None] = lambda text: None
) -> IslandsContents:
    """Simulate a plan of islands, and ask targets whether they launch it."""
    progress("simulating")
    steps = tuple(commands.simulate(island) for island in plan.islands)
    run = simulate_islands(plan, tuple(step.timeline.step_s for step in steps))
    progress("launches")
    ranks = sum(island.config.world_size for island in plan.islands)
    names = exporters.of_islands() if ranks <= MOST else ()
    targets = tuple(_target(plan, name, ranks) for name in names)
    of_hosts = (line for island in plan.islands for line in (*hosts.assumed(island), *environment.assumed(island)))
    assumed = tuple(dict.fromkeys(of_hosts))
    return IslandsContents(file, plan, run, steps, plan.prediction or run.prediction, targets, assumed)


def fullest_stage(step: Simulated) -> tuple[float, int]:
    """(share of its memory, pipeline rank) of the stage of an island that fills its device most."""
    shares = [a / b for a, b in zip(step.prediction.peak_memory_bytes, memory.limits(step.plan), strict=True)]
    return max(shares), shares.index(max(shares))


def _target(plan: IslandsPlan, target: str, ranks: int) -> LaunchTarget:
    """The launch of a plan of islands for one target that launches islands."""
    refused = tuple(f"{target} cannot express {fault}" for fault in exporters.unsupported_islands(target, plan))
    exporter = exporters.islands(target)
    if refused or ranks > MOST_LAUNCHED or exporter is None:
        return LaunchTarget(target, refused)
    launch = exporter.islands_launch(plan)
    return LaunchTarget(target, how=launch.how, assumed=launch.assumed)
