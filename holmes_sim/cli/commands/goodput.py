"""holmes-sim goodput: simulate a month of training with failures, checkpoints and restarts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holmes_sim.cli import islands_plans
from holmes_sim.cli import output as out
from holmes_sim.cli.options import Json, PlanArgument, Tokens

NAME = "goodput"
ORDER = 47
EXAMPLE = "holmes-sim goodput plan.json --fail device:50000h --checkpoint 60s --restart 10min"


def command(
    plan: PlanArgument,
    checkpoint: Annotated[str, typer.Option(metavar="TIME", help="Time that a checkpoint stops training.")],
    restart: Annotated[
        str, typer.Option(metavar="TIME", help="Time from a failure until training continues, with a spare node ready.")
    ],
    fail: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND:MTBF",
            help="KIND is device, node or link; MTBF is the mean time between failures of one of them. May be repeated. "
            "Default: device:50677h, all interruptions of the Llama 3 training run.",
        ),
    ] = None,
    interval: Annotated[
        str | None, typer.Option(metavar="TIME", help="Time between checkpoints. Default: Daly's interval.")
    ] = None,
    leave: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND:EVERY:AWAY",
            help="Islands of a plan of islands leave and come back: KIND is island or node, one of which leaves every EVERY on "
            "average and is away for AWAY on average, such as island:100h:2h. May be repeated.",
        ),
    ] = None,
    days: Annotated[float, typer.Option(metavar="DAYS", min=0.01, help="Length of a simulated run.")] = 30.0,
    seeds: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Number of simulated runs. Default: 200, of islands at most 40.")
    ] = None,
    chart: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw goodput over the checkpoint interval (png, svg, pdf).")
    ] = None,
    tokens: Tokens = None,
    as_json: Json = False,
) -> None:
    """Compute the goodput of a month of training with failures, and the best checkpoint interval."""
    from holmes_sim import islands
    from holmes_sim.month import goodput
    from holmes_sim.whole_runs import tokens_of, whole_run
    from sim.errors import HolmesError
    from sim.plan.islands import IslandsPlan

    if tokens is not None:
        tokens_of(tokens)
    given = islands.read_either(plan)
    out.can_be_written(chart)
    out.can_be_drawn(chart)
    if isinstance(given, IslandsPlan):
        if interval is not None or chart is not None:
            raise HolmesError(f"{plan}: a plan of islands takes no --interval and --chart")
        rates = (list(fail or ()), list(leave or ()))
        islands_plans.goodput(given, (checkpoint, restart), rates, (days, seeds), tokens, as_json)
        return
    if leave:
        raise HolmesError(f"{plan}: --leave is for plans of islands (holmes-sim plan --sync)")
    kinds = tuple(fail or ())
    with out.progress("simulating"):
        found = goodput(
            given,
            checkpoint=checkpoint,
            restart=restart,
            fail=kinds,
            interval=interval,
            days=days,
            seeds=range(seeds or 200),
        )
    if chart is not None:
        from holmes_sim import charts

        out.save(charts.goodput(found), chart)
    whole = whole_run(given, tokens, found.run) if tokens is not None else None
    if as_json:
        out.show_json(found.facts() | ({"whole_run": whole.facts()} if whole is not None else {}))
        return
    from holmes_sim import printing

    out.show(printing.goodput(found))
    if whole is not None:
        out.show(printing.whole_run(whole))
    out.note_written(chart)
