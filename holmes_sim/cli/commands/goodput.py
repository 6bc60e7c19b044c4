"""holmes-sim goodput: a month of a plan's steps, with failures, checkpoints and restarts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holmes_sim.cli import output as out
from holmes_sim.cli.options import Json, PlanArgument

NAME = "goodput"
ORDER = 47
EXAMPLE = "holmes-sim goodput plan.json --fail device:50000h --checkpoint 60s --restart 10min"


def command(
    plan: PlanArgument,
    checkpoint: Annotated[str, typer.Option(metavar="TIME", help="How long the steps rest while work is saved.")],
    restart: Annotated[str, typer.Option(metavar="TIME", help="From a failure until steps go on, with a spare at hand.")],
    fail: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND:MTBF",
            help="device, node or link, and the mean time between failures of one; may be given again. "
            "Unless given, device:50677h: all interruptions of Llama 3.",
        ),
    ] = None,
    interval: Annotated[str | None, typer.Option(metavar="TIME", help="Between checkpoints; Daly's unless given.")] = None,
    days: Annotated[float, typer.Option(metavar="DAYS", min=0.01, help="Length of a run.")] = 30.0,
    seeds: Annotated[int, typer.Option(metavar="N", min=1, help="How many runs.")] = 200,
    chart: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw goodput against the interval (png, svg, pdf).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what part of a month of training lasts where machines fail, and how often to save."""
    from holmes_sim import commands
    from holmes_sim.month import goodput

    given = commands.read_plan(plan)
    out.can_be_written(chart)
    out.can_be_drawn(chart)
    kinds = tuple(fail or ())
    with out.progress("simulating"):
        found = goodput(
            given, checkpoint=checkpoint, restart=restart, fail=kinds, interval=interval, days=days, seeds=range(seeds)
        )
    if chart is not None:
        from holmes_sim import charts

        out.save(charts.goodput(found), chart)
    if as_json:
        out.show_json(found.facts())
        return
    from holmes_sim import printing

    out.show(printing.month(found))
    out.note_written(chart)
