"""holmes-sim schema: print the JSON Schema of a file format."""

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
        str,
        typer.Argument(
            metavar="topology|plan|study|require|expert-counts",
            help="File format.",
            autocompletion=completion.words("topology", "plan", "study", "require", "expert-counts"),
        ),
    ],
) -> None:
    """Print the JSON Schema of a file format, for use in editors."""
    from holmes_sim.sweeping.study import study_schema
    from sim.errors import HolmesError
    from sim.formats.expert_counts import expert_counts_schema
    from sim.formats.planfile import plan_schema
    from sim.formats.require_facts import require_schema
    from sim.formats.topology_facts import topology_schema

    known = {"topology": topology_schema, "plan": plan_schema, "study": study_schema, "require": require_schema}
    known["expert-counts"] = expert_counts_schema
    if what not in known:
        raise HolmesError(f"there is no schema of {what!r}; known: {', '.join(known)}")
    out.show_json(known[what]())
