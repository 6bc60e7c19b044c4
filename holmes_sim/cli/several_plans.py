"""Answers of `holmes-sim plan` with several plans: the Pareto front and the shortlist, as tables, JSON and files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from holmes_sim.cli import output as out

if TYPE_CHECKING:
    from planner.request import Request, Wishes
    from sim.hardware.topology import Topology
    from sim.workload.workload import Workload


def pareto(
    where: Topology,
    workload: Workload,
    wishes: Wishes,
    time_limit: float,
    launch: str,
    files_to: tuple[Path | None, Path | None],
    as_json: bool,
) -> None:
    """Print, draw and write the Pareto front of step time, cost and energy; `files_to`: folder of the plans, and chart."""
    from holmes_sim import files, front
    from holmes_sim.intervals import plan_facts
    from sim.formats import planfile

    output, chart = files_to
    out.can_be_drawn(chart)
    if output is not None:
        files.folder(output)
    with out.progress("planning", time_limit) as progress:
        found = front.pareto(where, workload, wishes, time_limit, progress, launch)
    for number, plan in enumerate(found.plans, 1):
        out.write(output / f"{number}.json" if output is not None else None, planfile.to_json(plan, plan_facts(plan)))
    if chart is not None:
        from holmes_sim import charts

        out.save(charts.front(found), chart)
    if as_json:
        out.show_json(found.facts())
    else:
        from holmes_sim import printing

        out.show(printing.front(found))
        out.note_written(output, chart)
    out.note("Interrupted: these are the best plans found so far." if found.interrupted else "")


def shortlist(
    request: Request, number: int, target: str, folders: list[Path] | None, output: Path, again: str, as_json: bool
) -> None:
    """Write and print the plans whose measurement says most about which layout is fastest."""
    from holmes_sim import exporters, proposals, runs, shortlist_folder
    from holmes_sim.launching import folder

    exporters.get(target)
    shortlist_folder.check(output)
    known = runs.read(folders) if folders else ()
    with out.progress("planning") as progress:
        found = proposals.proposals(request, number, target, known, progress)
    folder.write(shortlist_folder.launch(found, output, again, folders or ()), output)
    if as_json:
        out.show_json(found.facts())
        return
    from holmes_sim import printing

    out.show(printing.proposed(found))
    out.note(f"Written to {output}. Next: run one plan or more ({output}/README.md says how).")
