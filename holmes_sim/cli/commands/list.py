"""holmes-sim list: list entries of the catalogue, and choices such as strategies and schedules."""

from __future__ import annotations

from typing import Annotated

import typer

from holmes_sim.cli import completion
from holmes_sim.cli import output as out
from holmes_sim.cli.options import Json

NAME = "list"
ORDER = 50
EXAMPLE = "holmes-sim list devices"
KINDS = (
    "devices", "links", "nics", "models", "profiles", "stacks",
    "topologies", "studies", "strategies", "schedules", "collectives", "targets",
)  # fmt: skip


def command(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND", help=f"{', '.join(KINDS[:-1])} or {KINDS[-1]}.", autocompletion=completion.words(*KINDS)
        ),
    ],
    as_json: Json = False,
) -> None:
    """List entries of the catalogue, or choices such as strategies, schedules and launch targets."""
    from holmes_sim import capabilities, commands, exporters, lists
    from holmes_sim.sweeping import study

    found = lists.list(kind)
    if as_json:
        out.show_json(lists.facts(kind))
        return
    from holmes_sim import printing

    if kind == "topologies":
        out.show(printing.topologies((name, commands.load(name)) for name in found))
        return
    if kind == "studies":
        out.show(printing.studies(map(study.load, found)))
        return
    if kind in lists.REGISTRIES:
        out.show(printing.modules(kind.capitalize(), [(name, lists.what(kind, name)) for name in found]))
        if kind == "targets":
            out.show("")
            out.show(printing.frameworks({name: capabilities.of(name) for name in exporters.frameworks()}))
        return
    out.show(printing.catalogue(kind))
    if kind == "links":
        out.show(printing.catalogue("nics"))
