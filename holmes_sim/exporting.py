"""Export a plan: the files that launch it with a training framework or a scheduler."""

from __future__ import annotations

from holmes_sim import exporters
from holmes_sim.launching import folder
from holmes_sim.launching.folder import Launch
from sim.errors import NotSupported
from sim.plan.plan import Plan


def export(plan: Plan, target: str) -> Launch:
    """The launch files of a plan for a target, with a README and the plan.

    Raises HolmesError for an unknown target, NotSupported with one line per property that the target cannot express."""
    exporter = exporters.get(target)
    faults = tuple(exporters.unsupported(target, plan))
    if faults:
        raise NotSupported("\n".join(f"{target} cannot express {fault}" for fault in faults))
    return folder.complete(plan, exporter.TITLE, exporter.READERS, exporter.launch(plan))
