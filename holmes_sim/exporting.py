"""A plan as the files of a launch."""

from __future__ import annotations

from holmes_sim import exporters
from holmes_sim.launching import folder
from holmes_sim.launching.folder import Launch
from sim.errors import PlanError
from sim.plan.plan import Plan


def export(plan: Plan, target: str) -> Launch:
    """The folder of a launch by a target, README and plan included.

    Raises HolmesError for an unknown target, PlanError with a line for every property that the target cannot express."""
    exporter = exporters.get(target)
    faults = tuple(exporter.against(plan))
    if faults:
        raise PlanError("\n".join(f"{target} cannot express {fault}" for fault in faults))
    return folder.complete(plan, exporter.TITLE, exporter.READERS, exporter.launch(plan))
