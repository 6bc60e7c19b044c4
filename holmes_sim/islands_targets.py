"""What launch targets cannot launch of plans of islands."""

from __future__ import annotations

import functools
from collections.abc import Callable

from holmes_sim import exporters, requirements, targets
from planner.islands.allowed_sync import AllowedSync
from planner.target import AT_LEAST
from sim.errors import Infeasible, OptionError
from sim.hardware.topology import Topology
from sim.plan.islands import IslandsPlan


def launch_fault(where: Topology, target: str) -> Callable[[IslandsPlan], str]:
    """A function of a plan of islands: all that one of the targets by name, required ones included, cannot launch of it; empty
    if they can launch all."""
    return functools.partial(_fault, _names(where, target))


def check_launch(where: Topology, target: str, allowed: AllowedSync) -> None:
    """Raise Infeasible where only plans of islands are allowed, and one of the targets by name launches none."""
    fault = next(filter(None, map(_no_islands, _names(where, target))), "")
    if fault and allowed.names and not allowed.exact:
        raise Infeasible(f"no plan with --sync {allowed.text}: {fault}")


def _names(where: Topology, target: str) -> tuple[str, ...]:
    """The targets by name, required ones included."""
    asked = (*requirements.required_targets(where), *target.split(exporters.AND))
    if several := next((name for name in asked if name.startswith(AT_LEAST)), ""):
        raise OptionError(f"require.targets: {several} is for one plan; islands take targets by name, such as [torchtitan]")
    return tuple(name for name in asked if name not in (targets.ANY, targets.NONE))


def _no_islands(name: str) -> str:
    return "" if exporters.islands(name) is not None else f"{name} launches no islands; {', '.join(exporters.of_islands())} do"


def _fault(names: tuple[str, ...], plan: IslandsPlan) -> str:
    for name in names:
        if fault := _no_islands(name):
            return fault
        if found := [*exporters.unsupported_islands(name, plan)]:
            return f"{name} cannot express {'; nor '.join(found)}"
    return ""
