"""holmes-sim replan: a plan for the machines that are left after the loss of nodes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holmes_sim.cli import output as out
from holmes_sim.cli.options import Json, PlanArgument, pinned

if TYPE_CHECKING:
    from planner.request import Wishes

NAME = "replan"
ORDER = 48
EXAMPLE = "holmes-sim replan plan.json --lost ib/node1 -o new.json"


@pinned
def command(
    plan: PlanArgument,
    wishes: Wishes,
    lost: Annotated[
        list[str], typer.Option(metavar="NODE", help="A node of the plan, or the name of a host; may be given again.")
    ],
    time_limit: Annotated[
        float, typer.Option(metavar="SECONDS", min=1.0, help="Seconds of search; the best plan so far comes back.")
    ] = 50.0,
    stay: Annotated[bool, typer.Option("--stay", help="Move nobody: the old stages with fewer replicas.")] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write the new plan to this file.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Plan anew after the loss of nodes, moving as few ranks as possible."""
    from holmes_sim import commands
    from holmes_sim.replanning import replan
    from sim.errors import HolmesError
    from sim.formats import planfile

    if stay and str(wishes):
        raise HolmesError(f"--stay keeps the layout of the plan; leave out {wishes}, or --stay")
    given = commands.read_plan(plan)
    out.can_be_written(output)
    with out.progress("planning") as progress:
        found = replan(given, lost, wishes, time_limit, progress, stay)
    out.write(output, planfile.to_json(found.plan))
    if as_json:
        out.show_json(found.facts())
        return
    from holmes_sim import printing

    out.show(printing.replanned(found))
    out.note("Interrupted: the plan is the best so far." if found.interrupted else "")
    out.note_written(output)
