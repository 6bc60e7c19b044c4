"""Answers of `holmes-sim plan` with several plans: the Pareto front and the shortlist, as tables, JSON and files."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from holmes_sim.cli import output as out

if TYPE_CHECKING:
    from planner.request import Wishes
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


def islands_pareto(
    where: Topology,
    workload: Workload,
    sync: str,
    wishes: Wishes,
    limits: tuple[float, str],
    files_to: tuple[Path | None, Path | None],
    as_json: bool,
) -> None:
    """Print, draw and write plans that trade speed, money and what sync strategies give up.

    `limits`: time limit in seconds, and the launch target; `files_to` as for `pareto`."""
    from holmes_sim import files, islands_front
    from holmes_sim.intervals import plan_facts
    from sim.formats import islandsfile, planfile
    from sim.plan.islands import IslandsPlan

    output, chart = files_to
    out.can_be_drawn(chart)
    if output is not None:
        files.folder(output)
    with out.progress("planning", limits[0]) as progress:
        found = islands_front.pareto_islands(where, workload, sync, wishes, limits[0], progress, limits[1])
    for number, row in enumerate(found.rows, 1):
        plan = row.plan
        text = islandsfile.to_json(plan) if isinstance(plan, IslandsPlan) else planfile.to_json(plan, plan_facts(plan))
        out.write(output / f"{number}.json" if output is not None else None, text)
    if chart is not None:
        from holmes_sim import charts

        out.save(charts.islands_front(found), chart)
    if as_json:
        out.show_json(found.facts())
    else:
        from holmes_sim import printing

        out.show(printing.islands_front(found))
        out.note_written(output, chart)
    out.note("Interrupted: these are the best plans found so far." if found.interrupted else "")


Asked = tuple["Topology", "Workload", "Wishes", float, str]
"""What a shortlist is for: topology, workload, pins, time limit in seconds, and launch target."""


def again(topo: str, options: Mapping[str, object], edits: Sequence[str], wishes: Wishes) -> str:
    """The words behind `holmes-sim plan` that ask for a topology again: options that have a value, edits and pins."""
    words = [topo, *(word for name, value in options.items() if value is not None for word in (name, str(value)))]
    words += [word for edit in edits for word in ("--set", edit)]
    return " ".join(filter(None, (shlex.join(words), str(wishes))))


def shortlist(asked: Asked, number: int, folders: list[Path] | None, output: Path, words: str, as_json: bool) -> None:
    """Write and print the plans whose measurement says most about which layout is fastest. `words` are those of `again`."""
    from holmes_sim import exporters, proposals, requirements, runs, shortlist_folder
    from holmes_sim.launching import folder

    request, target = requirements.request(*asked), asked[-1]
    exporters.get(target)
    shortlist_folder.check(output)
    known = runs.read(folders) if folders else ()
    with out.progress("planning") as progress:
        found = proposals.proposals(request, number, target, known, progress)
    folder.write(shortlist_folder.launch(found, output, words, folders or ()), output)
    if as_json:
        out.show_json(found.facts())
        return
    from holmes_sim import printing

    out.show(printing.proposed(found))
    out.note(f"Written to {output}. Next: run one plan or more ({output}/README.md says how).")
