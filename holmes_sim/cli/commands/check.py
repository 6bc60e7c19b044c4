"""holmes-sim check: say what is odd in a topology."""

from __future__ import annotations

from holmes_sim.cli import islands_plans
from holmes_sim.cli import output as out
from holmes_sim.cli.options import Json, TopologyArgument

NAME = "check"
ORDER = 4
EXAMPLE = "holmes-sim check topo.yaml"


def command(topology: TopologyArgument, as_json: Json = False) -> None:
    """Say what is odd in a topology: slow NICs, links and clusters that no plan can use, guessed devices, missing names."""
    from holmes_sim import checking

    islands_plans.refuse(topology, "a topology", f"`holmes-sim report {topology} -o page.html` has its warnings")
    found = checking.check(topology)
    if as_json:
        out.show_json(found.facts())
        return
    from holmes_sim import printing

    out.show(printing.checked(found))
