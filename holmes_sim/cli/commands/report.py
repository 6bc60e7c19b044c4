"""holmes-sim report: write a plan, or a plan of islands, as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holmes_sim.cli import completion
from holmes_sim.cli import output as out
from holmes_sim.cli.options import Measured, PlanArgument

NAME = "report"
ORDER = 42
EXAMPLE = "holmes-sim report plan.json -o report.html"

BASELINES = "megatron,holmes"
STRATEGIES_HELP = "Strategies to compare the plan with (holmes-sim list strategies)."


def command(
    plan: PlanArgument,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="HTML file to write; it is written completely or not at all.")
    ],
    strategies: Annotated[
        str,
        typer.Option(
            metavar="all|none|NAME,...",
            help=STRATEGIES_HELP,
            autocompletion=completion.listed("planner.strategies", "all", "none"),
        ),
    ] = BASELINES,
    time_limit: Annotated[
        float, typer.Option(metavar="SECONDS", min=1.0, help="Time limit of each strategy that searches.")
    ] = 10.0,
    profile: Measured = None,
) -> None:
    """Write a plan (also of islands or unlike pipelines) as one HTML page: placement, times, certificate and launch."""
    with out.progress(f"reading {plan}"):
        from holmes_sim import commands, reporting, unlike_pipelines
        from planner import strategies as known
        from sim.errors import HolmesError
        from sim.plan.islands import IslandsPlan
        from sim.plan.pipelines import PipelinesPlan

        read = unlike_pipelines.read_with_stages(plan)
    out.distinct(plan, output)
    if output.suffix.lower() not in (".html", ".htm"):
        raise HolmesError(f"{output}: the file name of a page must end in .html, not in {output.suffix or 'nothing'}")
    out.can_be_written(output)
    if isinstance(read, PipelinesPlan):
        if strategies not in (BASELINES, "none") or profile is not None:
            raise HolmesError(f"{plan}: the report of a plan of unlike pipelines takes no --strategies and --profile")
        with out.progress("reporting"):
            text = reporting.pipelines_page(unlike_pipelines.simulate_pipelines(read))
        out.write(output, text)
        out.note_written(output)
        return
    if isinstance(read, IslandsPlan):
        if strategies not in (BASELINES, "none") or profile is not None:
            raise HolmesError(f"{plan}: the report of a plan of islands takes no --strategies and --profile")
        with out.progress("reporting") as progress:
            text = reporting.islands_page(reporting.gather_islands(read, str(plan), progress))
        out.write(output, text)
        out.note_written(output)
        return
    given = commands.with_profile(read, profile)
    every = {"all": known.names(), "none": ()}
    names = every[strategies] if strategies in every else tuple(name.strip() for name in strategies.split(","))
    with out.progress("reporting") as progress:
        found = reporting.gather(given, names, time_limit, str(plan), progress)
        page = reporting.page(found)
    out.write(output, page)
    out.note_rests_on(given, profile)
    out.note(found.compared.note if found.compared else "")
    out.note_written(output)
