"""holmes-sim verify: compare predictions with this machine's devices, and write one report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from holmes_sim.cli import output as out
from holmes_sim.cli.options import Json

NAME = "verify"
ORDER = 66
EXAMPLE = "holmes-sim verify --gpu -o verification.json"


def command(
    gpu: Annotated[bool, typer.Option("--gpu", help="Require a GPU. Default: the GPUs of this machine, or its CPU.")] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write everything that was measured (JSON).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Profile a device of this machine, and compare predicted with measured steps of models of three sizes."""
    from holmes_sim import verifying

    out.can_be_written(output)
    with out.progress("verifying") as progress:
        found = verifying.verify(gpu, progress)
    out.write(output, json.dumps(found.facts(), indent=2) + "\n")
    if as_json:
        out.show_json(found.facts())
        return
    from holmes_sim import printing

    out.show(printing.verified(found))
    out.note_written(output)
