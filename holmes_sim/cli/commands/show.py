"""holmes-sim show: a topology, or a plan and where its ranks stand."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holmes_sim.cli import output as out
from holmes_sim.cli.options import Json

NAME = "show"
ORDER = 40
EXAMPLE = "holmes-sim show topologies/holmes-hybrid-4.yaml -o fleet.png"


def command(
    what: Annotated[str, typer.Argument(metavar="TOPO|PLAN", help="A topology, or a plan.")],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Draw a picture (png, svg, pdf).")] = None,
    as_json: Json = False,
) -> None:
    """Show a topology, or a plan and where its ranks stand, in words or as a picture."""
    from holmes_sim import commands

    is_plan = what.endswith(".json")
    if is_plan:
        given = commands.read_plan(what)
        where = given.topology
    else:
        where = commands.load(what)
    if output is not None:
        from holmes_sim import charts

        out.save(charts.placement(given) if is_plan else charts.topology(where), output)
    if as_json:
        from sim import planfile, topology

        out.show_json(planfile.facts(given) if is_plan else topology.written(where))
        return
    from holmes_sim import printing

    if is_plan:
        run = commands.simulate(given)
        out.show(printing.simulated(run))
        out.show(printing.groups(given))
    else:
        out.show(printing.topology(where))
    out.note_written(output)
