"""holmes-sim simulate: one step of a plan, played as discrete events."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holmes_sim.cli import output as out
from holmes_sim.cli.options import Json, Measured, PlanArgument

NAME = "simulate"
ORDER = 20
EXAMPLE = "holmes-sim simulate plan.json --trace timeline.json --chart step.png"


def command(
    plan: PlanArgument,
    trace: Annotated[Path | None, typer.Option(help="Write a Chrome trace, which Perfetto opens.")] = None,
    chart: Annotated[Path | None, typer.Option(help="Draw the pipeline (png, svg, pdf).")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Say where the time goes and what the step waits for.")] = False,
    profile: Measured = None,
    as_json: Json = False,
) -> None:
    """Play one step of a plan as discrete events."""
    from holmes_sim import commands
    from sim import timeline

    given = commands.read_plan(plan, profile)
    out.distinct(plan, trace, chart)
    out.can_be_written(trace, chart)
    with out.progress("simulating"):
        run = commands.simulate(given)
    out.write(trace, timeline.to_json(run.timeline) if trace else "")
    if chart is not None:
        from holmes_sim import charts

        out.save(charts.pipeline(given, run.timeline), chart)
    if as_json:
        out.show_json(run.facts() | ({"explanation": commands.explain(run).facts()} if explain else {}))
        return
    from holmes_sim import printing

    out.show(printing.simulated(run))
    if explain:
        out.show(printing.explained(commands.explain(run)))
    out.note_rests_on(given, profile)
    out.note(" ".join([printing.effort(run), *(f"Written to {path}." for path in (trace, chart) if path)]))
