"""holmes-sim simulate: one step of a plan, played as discrete events; or many, in trouble."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holmes_sim.cli import output as out
from holmes_sim.cli.options import Json, Measured, PlanArgument

if TYPE_CHECKING:
    from sim.plan.plan import Plan

NAME = "simulate"
ORDER = 20
EXAMPLE = "holmes-sim simulate plan.json --trace timeline.json --chart step.png"
TROUBLE = "Trouble, by seeds"
"""The part of --help where trouble stands."""
SEEDS = 200
"""Steps that are played in trouble unless told otherwise: enough for two beyond the 99th percentile."""


def command(
    plan: PlanArgument,
    trace: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a Chrome trace, which Perfetto opens; in trouble of the slowest step."),
    ] = None,
    chart: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw the pipeline, or in trouble the distribution of the step (png, svg, pdf)."),
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Say where the time goes and what the step waits for.")] = False,
    stragglers: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE:TIMES",
            help="1%:1.5 = each device is, with a chance of 1%, 1.5 times as slow.",
            rich_help_panel=TROUBLE,
        ),
    ] = None,
    jitter: Annotated[
        str | None,
        typer.Option(metavar="SPREAD", help="3% = lognormal spread of each compute action.", rich_help_panel=TROUBLE),
    ] = None,
    degrade: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE:RATE",
            help="1%:50% = each NIC and trunk is, with a chance of 1%, at half its rate.",
            rich_help_panel=TROUBLE,
        ),
    ] = None,
    flaps: Annotated[
        str | None,
        typer.Option(
            metavar="EVERY:DOWN",
            help="100h:5s = each NIC and trunk is down every 100 h, for 5 s.",
            rich_help_panel=TROUBLE,
        ),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(metavar="N", min=1, help=f"How many steps, {SEEDS} unless given.", rich_help_panel=TROUBLE)
    ] = None,
    profile: Measured = None,
    as_json: Json = False,
) -> None:
    """Play one step of a plan as discrete events; in trouble one for each seed, and say how long they take."""
    from holmes_sim import commands

    kinds = {"stragglers": stragglers, "jitter": jitter, "degrade": degrade, "flaps": flaps}
    _can_be_asked(any(kinds.values()), explain, seeds)
    given = commands.read_plan(plan, profile)
    out.distinct(plan, trace, chart)
    out.can_be_written(trace, chart)
    out.can_be_drawn(chart)
    if any(kinds.values()):
        _many(given, kinds, seeds or SEEDS, trace, chart, as_json)
    else:
        _one(given, trace, chart, explain, as_json)
    if not as_json:
        out.note_rests_on(given, profile)


def _can_be_asked(in_trouble: bool, explain: bool, seeds: int | None) -> None:
    from sim.errors import HolmesError

    if seeds is not None and not in_trouble:
        raise HolmesError("--seeds draws trouble, and none is given; add --stragglers 1%:1.5, say")
    if explain and in_trouble:
        raise HolmesError("--explain is about the plain step; leave it out, or the trouble")


def _one(given: Plan, trace: Path | None, chart: Path | None, explain: bool, as_json: bool) -> None:
    from holmes_sim import commands
    from sim.engine import timeline

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
    out.note(" ".join([printing.effort(run), *(f"Written to {path}." for path in (trace, chart) if path)]))


def _many(given: Plan, kinds: dict[str, str | None], seeds: int, trace: Path | None, chart: Path | None, as_json: bool) -> None:
    from holmes_sim import distribution
    from sim.engine import timeline

    with out.progress("simulating") as progress:
        found = distribution.trouble(given, **kinds, seeds=range(seeds), progress=progress)
    out.write(trace, timeline.to_json(found.timeline(found.slowest)) if trace else "")
    if chart is not None:
        from holmes_sim import charts

        out.save(charts.distribution(found), chart)
    if as_json:
        out.show_json(found.facts())
        return
    from holmes_sim import printing

    out.show(printing.troubled(found))
    played = f"{found.played} different steps played in {found.seconds:.1f} s."
    cut = f"Interrupted: {len(found.seeds)} of {seeds} seeds." if found.interrupted else ""
    out.note(" ".join(filter(None, [cut, played, *(f"Written to {path}." for path in (trace, chart) if path)])))
