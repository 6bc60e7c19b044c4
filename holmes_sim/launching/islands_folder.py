"""The folder of a launch of islands: its files, the plan, and a README that explains the launch and lists assumptions."""

from __future__ import annotations

from holmes_sim.launching import environment, folder, hosts
from holmes_sim.launching.folder import README, File, Launch
from sim.formats import islandsfile
from sim.plan.islands import IslandsPlan

PLAN = "islands.json"


def complete(plan: IslandsPlan, title: str, checked: str, launch: Launch) -> Launch:
    """The launch with the plan of islands, the assumptions about hosts and its README added. `checked` says how the target's
    settings of islands were checked."""
    of_hosts = (line for island in plan.islands for line in (*hosts.assumed(island), *environment.assumed(island)))
    assumed = tuple(dict.fromkeys((*launch.assumed, *of_hosts)))
    found = launch.files | {PLAN: File(islandsfile.to_json(plan), "the plan of islands that was exported")}
    whole = Launch(found, launch.how, assumed)
    return Launch({README: File(_readme(plan, title, checked, whole), "this file"), **found}, launch.how, assumed)


def _readme(plan: IslandsPlan, title: str, checked: str, launch: Launch) -> str:
    predicted = f" Predicted: {plan.prediction.period_s:.4g} s per outer period." if plan.prediction else ""
    lines = [
        f"# {plan.workload.model.name} on {len(plan.islands)} islands of {plan.topology.name}, for {title}",
        "",
        f"Plan by {plan.made_by.strategy} (holmes-sim {plan.made_by.version}); sync strategy: {plan.sync}.{predicted}",
        "",
        "| island | hosts | ranks | tp, pp, dp, cp | sequences a step |",
        "| --- | --- | --- | --- | --- |",
        *(row(plan, index) for index in range(len(plan.islands))),
        "",
    ]
    return "\n".join([*lines, *folder.sections(launch), f"How the settings of islands were checked: {checked}.", ""])


def row(plan: IslandsPlan, index: int) -> str:
    """The line of an island in the table of the README."""
    island = plan.islands[index]
    names = [host.name for host in hosts.of_plan(island)]
    shown = ", ".join(names) if len(names) <= 4 else f"{names[0]} ... {names[-1]} ({len(names)})"
    degrees = ", ".join(str(getattr(island.config, key)) for key in ("tp", "pp", "dp", "cp"))
    return f"| {index} | {shown} | {island.config.world_size} | {degrees} | {plan.batches[index]} |"
