"""holmes-sim sweep: plan all scenarios of a study."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holmes_sim.cli import completion, islands_plans
from holmes_sim.cli import output as out
from holmes_sim.cli.options import Json

NAME = "sweep"
ORDER = 41
EXAMPLE = "holmes-sim sweep trunk-and-batch -o table.csv --chart table.png"
ENGINES = "Where to plan: local (all cores of this machine), or dask://HOST:PORT of a Dask scheduler."
ENDED_BY_CTRL_C = 130


def command(
    study: Annotated[
        str,
        typer.Argument(
            metavar="STUDY",
            help="A study file, or the name of a shipped study.",
            autocompletion=completion.shipped("studies", ".yaml", ".yml"),
        ),
    ],
    engine: Annotated[str, typer.Option(metavar="local|dask://HOST:PORT", help=ENGINES)] = "local",
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="File to write the table to (csv, parquet); a journal beside it lets an interrupted sweep resume.",
        ),
    ] = None,
    chart: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw tokens/s over one or two varied keys (png, svg, pdf).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Plan all scenarios of a study. The same command resumes an interrupted sweep and plans no scenario twice."""
    from holmes_sim.sweeping import study as studies
    from holmes_sim.sweeping.sweep import sweep

    islands_plans.refuse(study, "a study", "`holmes-sim trunk TOPO` compares sync strategies by the bandwidth of the links")
    loaded = studies.load(study)
    out.distinct(Path(study), output, chart)
    out.can_be_drawn(chart)
    out.can_be_written(output, chart)
    if chart is not None:
        from holmes_sim import charts

        charts.axes_of(loaded)
    with out.bar(loaded.name) as progress:
        found = sweep(loaded, engine=engine, output=output, progress=progress)
    if chart is not None:
        out.save(charts.sweep(found), chart)
    if as_json:
        out.show_json(found.facts())
    else:
        from holmes_sim import printing

        out.show(printing.swept(found))
        out.note(f"{found.planned} scenarios planned in {found.seconds:.1f} s.")
        out.note_written(output, chart)
    if found.interrupted:
        out.note(
            "Interrupted: run the same command again to resume."
            if output
            else "Interrupted; only a sweep with -o can be resumed."
        )
        raise typer.Exit(ENDED_BY_CTRL_C)
