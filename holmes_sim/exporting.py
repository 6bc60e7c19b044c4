"""Export a plan of any kind: the files that launch it with a training framework or a scheduler, or by `holmes-sim run`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holmes_sim import exporters
from holmes_sim.launching import folder, islands_folder, run_folder
from holmes_sim.launching.folder import Launch
from sim.disaggregation.plan import DisaggregatedPlan
from sim.errors import NotSupported
from sim.plan.islands import IslandsPlan
from sim.plan.pipelines import PipelinesPlan
from sim.plan.plan import Plan

FORMAT = "holmes-sim/export/1"


def export(
    plan: Plan | IslandsPlan | PipelinesPlan | DisaggregatedPlan, target: str, output: str | Path | None = None
) -> Launch:
    """The launch files of a plan for a target, with a README and the plan; written to the folder `output`, if given, completely
    or not at all.

    Raises HolmesError for an unknown target, NotSupported with one line per property that the target cannot express, and the
    command that finds a plan for it. Plans with two sets of ranks, or of unlike pipelines, are for `holmes-sim run` alone."""
    if isinstance(plan, PipelinesPlan | DisaggregatedPlan):
        found = _run(plan, target)
    else:
        found = _islands(plan, target) if isinstance(plan, IslandsPlan) else _one(plan, target)
    if output is not None:
        folder.write(found, output)
    return found


def _stages(plan: Plan) -> str:
    """The layers of the stages of a pipeline, as text: `11+8+19+22`."""
    return "+".join(map(str, plan.layers))


def _one(plan: Plan, target: str) -> Launch:
    exporter = exporters.get(target)
    faults = tuple(exporters.unsupported(target, plan))
    if faults:
        raise NotSupported("\n".join([*(f"{target} cannot express {fault}" for fault in faults), *_remedy(plan, target)]))
    return folder.complete(plan, exporter.TITLE, exporter.READERS, exporter.launch(plan))


def _islands(plan: IslandsPlan, target: str) -> Launch:
    exporter = exporters.islands(target)
    if exporter is None:
        able = ", ".join(exporters.of_islands())
        raise NotSupported(f"{target} cannot keep islands together by {plan.sync.strategy}; targets that can: {able}")
    faults = tuple(exporters.unsupported_islands(target, plan))
    if faults:
        raise NotSupported("\n".join(f"{target} cannot express {fault}" for fault in faults))
    return islands_folder.complete(plan, exporter.ISLANDS_TITLE, exporter.ISLANDS_READERS, exporter.islands_launch(plan))


def _run(plan: PipelinesPlan | DisaggregatedPlan, target: str) -> Launch:
    exporter = exporters.runs(target)
    if exporter is None:
        able = f"targets that start `holmes-sim run`: {', '.join(exporters.of_run())}"
        if isinstance(plan, DisaggregatedPlan):
            raise NotSupported(f"{target} cannot express attention and experts on two sets of ranks; {able}")
        layers = ", ".join(_stages(one) for one in plan.pipelines)
        raise NotSupported(f"{target} cannot express pipelines {layers}: replicas with stages and layers of their own; {able}")
    return run_folder.complete(plan, exporter.RUN_TITLE, exporter.RUN_READERS, exporter.run_launch(plan))


def _remedy(plan: Plan, target: str) -> Iterator[str]:
    """The command that finds a plan for a training framework. Others refuse names and numbers of hosts, as no plan cures."""
    if exporters.get(target).KIND in ("framework", "islands"):
        command = f"holmes-sim plan TOPOLOGY --for {target}"
        yield f"for a plan that {target} can run: {command} (TOPOLOGY is the file of {plan.topology.name})"


def facts(launch: Launch, target: str, output: str | Path) -> dict[str, Any]:
    """A launch that was written to a folder, as plain data (format holmes-sim/export/1)."""
    found = {"format": FORMAT, "target": target, "folder": str(output)}
    return found | {"files": sorted(launch.files), "assumed": list(launch.assumed)}
