"""holmes-sim run: run a plan on real hardware with torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holmes_sim.cli import completion, disaggregated_plans, islands_runs, ranks
from holmes_sim.cli import output as out
from holmes_sim.cli.options import Json, PlanArgument

NAME = "run"
ORDER = 45
EXAMPLE = "holmes-sim run plan.json --local -o timeline.json"


def command(
    plan: PlanArgument,
    local: Annotated[
        bool, typer.Option("--local", help="Start all ranks on this machine. Default: torchrun starts each rank.")
    ] = False,
    steps: Annotated[
        int, typer.Option(metavar="N", min=1, help="Timed steps (of a plan of islands: outer periods), after one untimed one.")
    ] = 3,
    compute: Annotated[
        str,
        typer.Option(
            metavar="real|paced",
            help="real: compute. paced: sleep for the modelled seconds of the device.",
            autocompletion=completion.words("real", "paced"),
        ),
    ] = "real",
    scale: Annotated[
        float, typer.Option(metavar="S", min=1e-6, help="With paced compute: multiply the modelled seconds by S.")
    ] = 1.0,
    device: Annotated[
        str, typer.Option(metavar="auto|cpu", help="With real compute: auto (the GPUs of a host, if torch finds any) or cpu.")
    ] = "auto",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write the measured timeline (Chrome trace).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Train a few steps of a plan, or outer periods of islands, with torch, and compare measured with simulated times."""
    from holmes_sim import running, unlike_pipelines
    from holmes_sim.torch_backend.run_options import RunOptions
    from sim.disaggregation.plan import DisaggregatedPlan
    from sim.plan.islands import IslandsPlan
    from sim.plan.plan import Plan

    given = unlike_pipelines.read_every_kind(plan)
    out.distinct(plan, output)
    out.can_be_written(output)
    options = RunOptions(steps, compute, scale, str(output or ""), device=device)
    if isinstance(given, IslandsPlan):
        islands_runs.run(plan, given, options, local, as_json)
        return
    if isinstance(given, DisaggregatedPlan):
        disaggregated_plans.run(plan, given, options, local, as_json)
        out.note_written(output)
        return
    predicted = given.prediction if isinstance(given, Plan) and local else None
    ranks.note_wait(predicted.step_s if predicted else None, options, scale)
    compared = ranks.run(
        plan, len(given.placement), local,
        lambda: running.as_rank(given, options), lambda: running.run_here(given, options),
    )  # fmt: skip
    if compared is None:
        return
    notes = ranks.loopback(local, (given,))
    if as_json:
        out.show_json(running.facts(compared) | {"notes": list(notes)})
        return
    from holmes_sim import printing

    out.show(printing.measured((compared,)))
    ranks.note_devices(compared.measured.computed_on, (given.fleet.spec(device).name for device in given.placement))
    if not running.is_comparable(compared.measured.computed_on, compared.plan.specs):
        out.note(ranks.NOT_COMPARABLE)
    ranks.show_notes(notes)
    out.note_written(output)
