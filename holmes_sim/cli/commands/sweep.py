"""holmes-sim sweep: plan all scenarios of a study, or a topology with all values of some keys."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holmes_sim.cli import completion, islands_plans
from holmes_sim.cli import output as out
from holmes_sim.cli.options import Edits, Json, RequireFile, SyncWord, edited, values_of

if TYPE_CHECKING:
    from holmes_sim.sweeping.study import Study

NAME = "sweep"
ORDER = 41
EXAMPLE = "holmes-sim sweep trunk-and-batch -o table.csv --chart table.png"
ENGINES = "Where to plan: local (all cores of this machine), or dask://HOST:PORT of a Dask scheduler."
ENDED_BY_CTRL_C = 130


def command(
    study: Annotated[
        str,
        typer.Argument(
            metavar="STUDY|TOPO",
            help="A study file, or the name of a shipped study; with KEY=VALUES, a topology file, or the name of one.",
            autocompletion=completion.shipped("studies", ".yaml", ".yml"),
        ),
    ],
    vary: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUES",
            help="Key of the topology or option of the plan, and its values: 'links[0].bandwidth=1 Gbit/s, 10 Gbit/s', "
            "plan.tp=2; as a list in JSON if a value has a comma.",
        ),
    ] = None,
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
    edits: Edits = None,
    require: RequireFile = None,
    sync: SyncWord = "exact",
    time_limit: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=1.0, help="Time limit of each plan. Default: that of the study, or 50."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Plan all scenarios of a study, or of KEY=VALUES. The same command resumes an interrupted sweep, plans none twice."""
    from holmes_sim.sweeping.sweep import sweep

    loaded = _study(study, vary or [], (edits, require), {"sync": sync if sync != "exact" else None, "time_limit": time_limit})
    out.distinct(Path(study), require, output, chart)
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


def _study(name: str, vary: list[str], changes: tuple[list[str] | None, Path | None], options: dict[str, object]) -> Study:
    """The study of a file with options of plans that are not None, or that of a topology and values. `changes`: edits and a
    file of requirements. Raises HolmesError."""
    from holmes_sim import commands
    from holmes_sim.sweeping import study as studies
    from planner.islands.allowed_sync import parse
    from sim.errors import HolmesError, OptionError

    edits, require = changes
    given = {key: value for key, value in options.items() if value is not None}
    parse(str(given.get("sync", "exact")))
    if vary:
        islands_plans.refuse(name, "a topology", "`--sync any` plans islands of a topology")
        values = values_of(vary)
        fixed = {key for key, listed in values.items() if key.startswith(studies.PLAN) and len(listed) == 1}
        fixed = fixed if len(fixed) < len(values) else set()
        given |= {key.removeprefix(studies.PLAN): values.pop(key)[0] for key in sorted(fixed)}
        return studies.study_of(edited(commands.load(name), edits, require), values, (), given)
    if edits:
        raise OptionError(f"--set changes a topology, which {name} is not without KEY=VALUES; give the key in the study")
    islands_plans.refuse(name, "a study", "`holmes-sim sweep TOPO KEY=VALUES --sync any` plans islands of a topology")
    try:
        return studies.with_options(studies.load(name, require), given)
    except HolmesError:
        if not _is_topology(name):
            raise
    raise OptionError(f"{name}: this is a topology; say what varies, such as plan.tp=1,2, or give a study")


def _is_topology(name: str) -> bool:
    from holmes_sim import commands
    from sim.errors import HolmesError

    try:
        commands.load(name)
    except HolmesError:
        return False
    return True
