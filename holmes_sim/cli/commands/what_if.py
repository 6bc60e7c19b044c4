"""holmes-sim what-if: rank hardware and workload changes by their gain."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from holmes_sim.cli import islands_plans
from holmes_sim.cli import output as out
from holmes_sim.cli.options import Edits, Json, LaunchTarget, Measured, RequireFile, SyncWord, TopologyArgument, edited

NAME = "what-if"
ORDER = 43
EXAMPLE = "holmes-sim what-if holmes-hybrid-4"


def command(
    topo: TopologyArgument,
    time_limit: Annotated[float, typer.Option(metavar="SECONDS", min=1.0, help="Time limit of the whole search.")] = 100.0,
    launch: LaunchTarget = "any",
    edits: Edits = None,
    profile: Measured = None,
    require: RequireFile = None,
    sync: SyncWord = "exact",
    as_json: Json = False,
) -> None:
    """Rank changes of NICs, links, nodes, memory, devices, batch or sequence length by their gain in tokens/s."""
    begun = time.monotonic()
    from holmes_sim import commands, whatif

    islands_plans.refuse(topo, "a topology", "`--sync any` plans islands of a topology")
    where = edited(commands.load(topo, profile), edits, require)
    commands.workload_of(where)
    left = max(time_limit - (time.monotonic() - begun), 0.0)
    with out.progress("what if", left) as progress:
        found = whatif.what_if(where, left, progress, target=launch, sync=sync)
    if as_json:
        out.show_json(found.facts())
        return
    from holmes_sim import printing

    out.show(printing.what_if(found))
    out.note(f"Evaluated {len(found.outcomes)} changes in {time.monotonic() - begun:.0f} s.")
    out.note("Interrupted: some changes were not replanned." if found.interrupted else "")
