"""holmes-sim replan: plan for the remaining nodes after some nodes were lost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holmes_sim.cli import islands_plans
from holmes_sim.cli import output as out
from holmes_sim.cli.options import Json, PlanArgument, TargetOfPlan, pinned

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
        list[str],
        typer.Option(metavar="NODE", help="A lost node of the plan, such as ib/node1, or its host name; may be repeated."),
    ],
    time_limit: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", min=1.0, help="Time limit of the search; at the limit, the best plan found so far is returned."
        ),
    ] = 50.0,
    stay: Annotated[bool, typer.Option("--stay", help="Move no rank: keep the stages and use fewer replicas.")] = False,
    launch: TargetOfPlan = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write the new plan to this file.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Find a new plan after the loss of nodes that moves as few ranks as possible."""
    from holmes_sim import commands
    from holmes_sim.intervals import plan_facts
    from holmes_sim.replanning import replan
    from sim.errors import HolmesError
    from sim.formats import planfile

    if stay and str(wishes):
        raise HolmesError(f"--stay keeps the layout of the plan; leave out either {wishes} or --stay")
    answer = f"`holmes-sim simulate {plan} --leave 0@2h` simulates that island 0 leaves"
    islands_plans.refuse(plan, "a plan of one island", answer)
    given = commands.read_plan(plan)
    out.can_be_written(output)
    with out.progress("planning", None if stay else time_limit) as progress:
        found = replan(given, lost, wishes, time_limit, progress, stay, launch)
    out.write(output, planfile.to_json(found.plan, plan_facts(found.plan)))
    if as_json:
        out.show_json(found.facts())
        return
    from holmes_sim import printing

    out.show(printing.replanned(found))
    out.note("Interrupted: this is the best plan found so far." if found.interrupted else "")
    out.note_written(output)
