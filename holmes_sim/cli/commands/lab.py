"""holmes-sim lab: the plan's ranks on this machine, over links that are shaped as the topology says."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holmes_sim.cli import completion
from holmes_sim.cli import output as out
from holmes_sim.cli.options import Json, PlanArgument

NAME = "lab"
ORDER = 46
EXAMPLE = "holmes-sim lab plan.json -o timeline.json --chart lab.png"


def command(
    plan: PlanArgument,
    steps: Annotated[int, typer.Option(metavar="N", min=1, help="Steps that are timed, behind one that is not.")] = 3,
    compute: Annotated[
        str,
        typer.Option(
            metavar="paced|real",
            help="paced: wait the device model's seconds. real: this machine's CPU.",
            autocompletion=completion.words("paced", "real"),
        ),
    ] = "paced",
    scale: Annotated[
        float, typer.Option(metavar="S", min=0, help="So many times slower; unless given, as fast as the cores carry.")
    ] = 0.0,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write the measured timeline (Chrome trace).")
    ] = None,
    chart: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the simulated and the measured step (png, svg, pdf).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Play a plan in network namespaces with real packets, and hold what was measured against what was predicted."""
    from holmes_sim import commands, running
    from holmes_sim.torch_backend.asked import Asked

    given = commands.read_plan(plan)
    out.distinct(plan, output, chart)
    out.can_be_written(output, chart)
    out.can_be_drawn(chart)
    with out.progress(f"{given.config.world_size} ranks in the lab"):
        answer = running.run_in_lab(given, Asked(steps, compute, scale, str(output or "")))
    held = answer.held
    if chart is not None:
        from holmes_sim import charts

        out.save(charts.measurement((held,)), chart)
    for line in answer.notes:
        out.note(f"Note: {line}.")
    if as_json:
        out.show_json(running.facts(held) | {"notes": list(answer.notes)})
        return
    from holmes_sim import printing

    out.show(printing.held((held,)))
    out.note_written(output, chart)
