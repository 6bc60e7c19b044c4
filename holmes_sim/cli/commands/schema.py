"""holmes-sim schema: print the JSON Schema of a document or a file."""

from __future__ import annotations

from typing import Annotated

import typer

from holmes_sim.cli import completion
from holmes_sim.cli import output as out

NAME = "schema"
ORDER = 60
EXAMPLE = "holmes-sim schema topology > topology.schema.json"


def command(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="File or document, such as topology, plan, study, require or report; result: every document of --json.",
            autocompletion=completion.schemas,
        ),
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List all files and documents that have a schema.")] = False,
) -> None:
    """Print the JSON Schema of a file, for use in editors, or of a document that a command prints with --json."""
    from holmes_sim import schemas
    from sim.errors import OptionError

    if listed == (what is not None):
        raise OptionError(f"give either the name of a schema or --list; known: {', '.join(schemas.names())}")
    if what is not None:
        out.show_json(schemas.schema(what))
        return
    from holmes_sim import printing

    out.show(printing.schemas(schemas.REGISTRY.entries()))
