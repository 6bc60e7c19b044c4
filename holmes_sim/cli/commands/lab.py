"""holmes-sim lab: run a plan on this machine over emulated links with the rates of the topology."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated

import typer

from holmes_sim.cli import completion, disaggregated_plans, islands_runs, ranks
from holmes_sim.cli import output as out
from holmes_sim.cli.options import Json, PlanArgument

NAME = "lab"
ORDER = 46
EXAMPLE = "holmes-sim lab plan.json -o timeline.json --chart lab.png"
LEAST = 0.001
"""Least factor of --scale: a lab a thousand times as fast as the topology (a guess; below 1 it suits slow links)."""


def command(
    plan: PlanArgument,
    steps: Annotated[
        int, typer.Option(metavar="N", min=1, help="Timed steps (of a plan of islands: outer periods), after one untimed one.")
    ] = 3,
    compute: Annotated[
        str,
        typer.Option(
            metavar="paced|real",
            help="paced: sleep for the modelled seconds of the device. real: compute on the CPU of this machine.",
            autocompletion=completion.words("paced", "real"),
        ),
    ] = "paced",
    scale: Annotated[
        float | None,
        typer.Option(
            metavar="S", min=LEAST, help="Slow the plan down by this factor. Default: the smallest that the cores can carry."
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write the measured timeline (Chrome trace).")
    ] = None,
    chart: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the simulated and the measured step (png, svg, pdf).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a plan in network namespaces with real packets, and compare the measured step with the simulated one."""
    from holmes_sim import printing, running, unlike_pipelines
    from holmes_sim.torch_backend.run_options import RunOptions
    from sim.disaggregation.plan import DisaggregatedPlan
    from sim.plan.islands import IslandsPlan

    given, options = unlike_pipelines.read_every_kind(plan), RunOptions(steps, compute, scale or 0.0, str(output or ""))
    out.distinct(plan, output, chart)
    out.can_be_written(output, chart)
    out.can_be_drawn(chart)
    if isinstance(given, IslandsPlan):
        islands_runs.lab(plan, given, options, chart, as_json)
        return
    if isinstance(given, DisaggregatedPlan):
        disaggregated_plans.lab(given, options, chart, as_json)
        out.note_written(output, chart)
        return
    ranks.note_wait(given.prediction.step_s if given.prediction else None, options, ranks.lab_scale(given, options))
    with out.progress(f"{len(given.placement)} ranks in the lab"):
        answer = running.run_in_lab(given, options)
    compared = answer.compared
    if chart is not None:
        from holmes_sim import charts

        out.save(charts.measurement((compared,)), chart)
    table, facts = functools.partial(printing.measured, (compared,)), running.facts(compared)
    ranks.show_lab(answer, compared.measured.scale, facts, table, as_json)
    out.note_written(output, chart)
