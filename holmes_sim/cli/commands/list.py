"""holmes-sim list: list entries of the catalogue, and choices such as strategies and schedules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

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
    from holmes_sim import commands, exporters
    from holmes_sim.sweeping import study
    from planner import strategies
    from sim import collectives
    from sim.errors import HolmesError
    from sim.formats import catalog
    from sim.plan import schedules

    if kind not in KINDS:
        raise HolmesError(f"{kind!r} cannot be listed; known: {', '.join(KINDS)}")
    of: dict[str, Callable[[], tuple[str, ...]]] = {
        "topologies": commands.shipped_topologies,
        "studies": study.shipped,
        "strategies": strategies.names,
        "schedules": schedules.names,
        "collectives": collectives.names,
        "targets": exporters.names,
    }
    found = of[kind]() if kind in of else catalog.names(kind)
    if as_json:
        out.show_json({"kind": kind, "names": list(found)})
        return
    from holmes_sim import printing

    if kind == "topologies":
        out.show(printing.topologies((name, commands.load(name)) for name in found))
        return
    if kind == "studies":
        out.show(printing.studies(map(study.load, found)))
        return
    if kind in of:
        folder: Any = {"strategies": strategies, "schedules": schedules, "collectives": collectives, "targets": exporters}[kind]
        out.show(printing.modules(kind.capitalize(), [(name, _first_line(folder.get(name).__doc__)) for name in found]))
        return
    out.show(printing.catalogue(kind))
    if kind == "links":
        out.show(printing.catalogue("nics"))


def _first_line(text: str | None) -> str:
    """First line of a module's docstring, without the name of the module in front."""
    line = (text or "").strip().splitlines()[0]
    name, _, rest = line.partition(": ")
    return rest if rest and " " not in name else line
