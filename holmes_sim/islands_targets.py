"""What launch targets cannot launch of plans of islands."""

from __future__ import annotations

import functools
from collections.abc import Callable

from holmes_sim import exporters, requirements, targets
from sim.hardware.topology import Topology
from sim.plan.islands import IslandsPlan


def launch_fault(where: Topology, target: str) -> Callable[[IslandsPlan], str]:
    """A function of a plan of islands: all that one of the targets by name, required ones included, cannot launch of it; empty
    if they can launch all."""
    asked = (*requirements.written(where).get("targets", ()), *target.split(exporters.AND))
    return functools.partial(_fault, tuple(name for name in asked if name not in (targets.ANY, targets.NONE)))


def _fault(names: tuple[str, ...], plan: IslandsPlan) -> str:
    for name in names:
        if exporters.islands(name) is None:
            return f"{name} launches no islands; {', '.join(exporters.of_islands())} do"
        if found := [*exporters.unsupported_islands(name, plan)]:
            return f"{name} cannot express {'; nor '.join(found)}"
    return ""
