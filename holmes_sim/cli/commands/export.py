"""holmes-sim export: the files of a real launch."""

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
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FOLDER", help="Folder to write: whole or not at all.")],
    as_json: Json = False,
) -> None:
    """Write everything that a real launch of a plan needs, or say what the target cannot express."""
    from holmes_sim import commands, exporting
    from holmes_sim.launching import folder

    launch = exporting.export(commands.read_plan(plan), to)
    folder.write(launch, output)
    if as_json:
        out.show_json({"target": to, "folder": str(output), "files": sorted(launch.files), "assumed": list(launch.assumed)})
        return
    from holmes_sim import printing

    out.show(printing.launched(to, output, launch))
