"""holmes-sim export: write the files that launch a plan, or a plan of islands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holmes_sim.cli import completion
from holmes_sim.cli import output as out
from holmes_sim.cli.options import Json, PlanArgument

NAME = "export"
ORDER = 44
EXAMPLE = "holmes-sim export plan.json --to megatron -o launch"


def command(
    plan: PlanArgument,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="TARGET",
            help="Launch target (holmes-sim list targets).",
            autocompletion=completion.modules("holmes_sim.exporters"),
        ),
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FOLDER", help="Folder to write; it is written completely or not at all.")
    ],
    as_json: Json = False,
) -> None:
    """Write the launch files of a plan, or of a plan of islands, for a target, or report what the target cannot express."""
    with out.progress(f"exporting to {to}"):
        from holmes_sim import exporting, unlike_pipelines

        launch = exporting.export(unlike_pipelines.read_every_kind(plan), to, output)
    if as_json:
        out.show_json(exporting.facts(launch, to, output))
        return
    from holmes_sim import printing

    out.show(printing.launched(to, output, launch))
