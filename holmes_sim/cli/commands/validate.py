"""holmes-sim validate: compare the simulator with measured training runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holmes_sim.cli import completion
from holmes_sim.cli import output as out
from holmes_sim.cli.options import Cases, Json, Measured

NAME = "validate"
ORDER = 70
EXAMPLE = "holmes-sim validate --stack honest-tp --by tp"
STACK = (
    "default (one set of constants), fitted (constants per software stack) or honest (fitted without the model family of the "
    "case); honest-tp, honest-pp and honest-nodes leave out its degree or its number of nodes instead."
)


def command(
    cases: Cases = None,
    stack: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help=STACK,
            autocompletion=completion.words("default", "fitted", "honest", "honest-tp", "honest-pp", "honest-nodes"),
        ),
    ] = "fitted",
    chart: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw predicted over measured step times (png, svg, pdf).")
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option(
            metavar="AXIS",
            help="Add a table of errors by tp, pp, nodes, device or precision. May be repeated.",
            autocompletion=completion.words("tp", "pp", "nodes", "device", "precision"),
        ),
    ] = None,
    profile: Measured = None,
    as_json: Json = False,
) -> None:
    """Compare simulated with measured step times of published training runs."""
    from holmes_sim import error_tables, intervals, memory_validation, validation
    from sim.errors import HolmesError

    if stack not in validation.STACKS:
        raise HolmesError(f"--stack {stack!r} is unknown; known: {', '.join(validation.STACKS)}")
    axes = tuple(dict.fromkeys(by or ()))
    error_tables.check(axes)
    with out.progress("validating") as progress:
        found = validation.read(cases or [validation.folder()], profile)
        rows = validation.validate(found, stack, progress)
    found = memory_validation.with_facts(found)
    if chart is not None:
        from holmes_sim import charts

        out.save(charts.validation(rows), chart)
    if as_json:
        tables = {"by": error_tables.facts(rows, axes)} if axes else {}
        held_out = {name: intervals.held_out_coverage(name == "fitted") for name in ("default", "fitted")}
        out.show_json(validation.facts(rows) | {"held_out_coverage": held_out} | tables | memory_validation.facts(found))
        return
    from holmes_sim import printing

    out.show(printing.validated(rows, found, axes))
    out.note_written(chart)
