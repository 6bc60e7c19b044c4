"""holmes-sim score: what the launch of today should reach, what it loses where, and what the best plan would give."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from holmes_sim.cli import completion, islands_plans
from holmes_sim.cli import output as out
from holmes_sim.cli.options import Edits, Json, Measured, ModelWord, StackWord, edited

NAME = "score"
ORDER = 35
EXAMPLE = "holmes-sim score train.sh --topo cluster.yaml"


def command(
    launch: Annotated[
        Path,
        typer.Argument(
            metavar="LAUNCH",
            help="Megatron-LM arguments, a shell or Slurm script that contains them, or a torchtitan TOML file.",
        ),
    ],
    topo: Annotated[
        str,
        typer.Option(
            metavar="TOPO",
            help="The devices that run it: a topology file, or the name of a shipped topology.",
            autocompletion=completion.shipped("topologies", ".yaml", ".yml"),
        ),
    ],
    var: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Value of a shell variable, in place of the script's; may be repeated."),
    ] = None,
    model: ModelWord = None,
    time_limit: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0.0, help="Time limit of the search for the best plan; 0: no search."),
    ] = 50.0,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write the best plan to this file.")
    ] = None,
    profile: Measured = None,
    stack: StackWord = None,
    edits: Edits = None,
    as_json: Json = False,
) -> None:
    """Say what a launch should reach on a fleet, where its seconds go, and how much faster the best plan is."""
    from holmes_sim import commands, scoring
    from holmes_sim.intervals import plan_facts
    from holmes_sim.launch_reading import given
    from sim.errors import Infeasible
    from sim.formats import planfile

    islands_plans.refuse(topo, "a topology", f"`holmes-sim simulate {topo}` says what the islands should reach")
    islands_plans.refuse(launch, "a launch", f"`holmes-sim simulate {launch}` says what the islands should reach")
    where = edited(commands.load(topo, profile), [*(edits or []), *([f"stack={stack}"] if stack else [])])
    out.distinct(launch, Path(topo), output)
    out.can_be_written(output)
    variables = given.variables(var or [])
    with out.progress("scoring", time_limit or None) as progress:
        found = scoring.score(launch, where, variables, model, time_limit, progress)
    if output is not None and found.best is None:
        raise Infeasible(f"no plan to write to {output}: {found.reason}")
    if found.best is not None and output is not None:
        out.write(output, planfile.to_json(found.best.plan, plan_facts(found.best.plan)))
    if as_json:
        out.show_json(found.facts())
        return
    from holmes_sim import printing

    asked = {"--var": var or [], "--model": [model] if model else [], "--stack": [stack] if stack else [], "--set": edits or []}
    words = ["holmes-sim", "score", str(launch), "--topo", topo]
    words += [word for option, values in asked.items() for value in values for word in (option, value)]
    out.show(printing.scored(found, shlex.join(words)))
    out.note_rests_on(found.today.plan, profile)
    out.note("Interrupted: this is the best plan found so far." if found.best is not None and found.best.interrupted else "")
    out.note_written(output)
