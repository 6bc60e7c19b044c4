"""holmes-sim sweep: a study, answered row by row."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holmes_sim.cli import completion
from holmes_sim.cli import output as out
from holmes_sim.cli.options import Json

NAME = "sweep"
ORDER = 41
EXAMPLE = "holmes-sim sweep trunk-and-batch -o table.csv --chart table.png"
WHERE = "Where scenarios are planned: local (all cores), or dask://HOST:PORT of a scheduler."
ENDED_BY_CTRL_C = 130


def command(
    study: Annotated[
        str,
        typer.Argument(
            metavar="STUDY",
            help="A study file, or the name of a shipped one.",
            autocompletion=completion.shipped("studies", ".yaml", ".yml"),
        ),
    ],
    engine: Annotated[str, typer.Option(metavar="local|dask://HOST:PORT", help=WHERE)] = "local",
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="Keep the table here (csv, parquet), with a journal to go on from."
        ),
    ] = None,
    chart: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw tokens/s by one or two varied keys (png, svg, pdf).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Plan a topology in many variations. The same command goes on where it was ended, and plans nothing twice."""
    from holmes_sim.sweeping import study as studies
    from holmes_sim.sweeping.sweep import sweep

    asked = studies.load(study)
    out.distinct(Path(study), output, chart)
    out.can_be_drawn(chart)
    out.can_be_written(output, chart)
    if chart is not None:
        from holmes_sim import charts

        charts.axes_of(asked)
    with out.bar(asked.name) as progress:
        found = sweep(asked, engine=engine, output=output, progress=progress)
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
        out.note("Interrupted: the same command goes on." if output else "Interrupted; with -o it could be gone on with.")
        raise typer.Exit(ENDED_BY_CTRL_C)
