"""holmes-sim place-experts: place the experts of a plan on its ranks, by counts of the tokens that chose them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holmes_sim.cli import completion, islands_plans
from holmes_sim.cli import output as out
from holmes_sim.cli.options import Json, PlanArgument

NAME = "place-experts"
ORDER = 49
EXAMPLE = "holmes-sim place-experts plan.json --counts counts.yaml --replicas 32 -o placement.json"


def command(
    plan: PlanArgument,
    counts: Annotated[
        Path, typer.Option(metavar="FILE", help="Tokens that chose each expert (holmes-sim schema expert-counts).")
    ],
    replicas: Annotated[
        int,
        typer.Option(
            metavar="N", min=0, help="Slots for replicas of hot experts, of all ranks of an ep group: a multiple of ep."
        ),
    ] = 0,
    time_limit: Annotated[
        float, typer.Option(metavar="SECONDS", min=1.0, help="Time limit of the mixed-integer programmes, all together.")
    ] = 30.0,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="holmes|sglang|vllm-ascend",
            help="Program that reads the file of -o.",
            autocompletion=completion.words("holmes", "sglang", "vllm-ascend"),
        ),
    ] = "holmes",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write the placement to this file.")
    ] = None,
    plan_output: Annotated[
        Path | None,
        typer.Option("--plan-output", metavar="FILE", help="Write the plan with the routing that follows from the placement."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Place experts on ranks so that exchanges over slow links and the busiest rank take least time; replicate hot ones."""
    from holmes_sim import commands, expert_files
    from holmes_sim.expert_placement import place_experts
    from holmes_sim.intervals import plan_facts
    from sim.formats import expert_counts, planfile

    islands_plans.refuse(plan, "a plan of one island", "each entry of its key `islands` is one")
    given = commands.read_plan(plan)
    expert_files.check(to, given.config.expert_tp)
    tokens = expert_counts.load(counts)
    out.distinct(plan, counts, output, plan_output)
    out.can_be_written(output, plan_output)
    with out.progress("placing experts", time_limit) as progress:
        found = place_experts(given, tokens, replicas, time_limit, progress)
    out.write(output, expert_files.text(to, found) if output else "")
    out.write(plan_output, planfile.to_json(found.chosen.plan, plan_facts(found.chosen.plan)) if plan_output else "")
    if as_json:
        out.show_json(found.facts())
        return
    from holmes_sim import printing

    out.show(printing.experts_placed(found))
    out.note_written(output, plan_output)
