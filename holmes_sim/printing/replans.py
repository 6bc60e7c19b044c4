"""What the loss of nodes costs: the new plan beside the old one, and what must move."""

from __future__ import annotations

from rich.console import Group
from rich.text import Text

from holmes_sim.printing.plans import degrees, layers_by_cluster
from holmes_sim.printing.tables import grid
from holmes_sim.replanning import Replanned
from sim.formats.lost_nodes import place_text
from sim.units import size_text, time_text


def replanned(found: Replanned) -> Group:
    """Both plans, the ranks and bytes that move, and the nodes that have another number now."""
    table = grid("Plans", "name", "step", "tokens/s", "devices", "ranks that move", "layout")
    for name, plan in (("before", found.before), ("planned anew", found.searched), ("nobody moves", found.stayed)):
        if plan is None:
            continue
        name = f"{name} (taken)" if plan is found.plan else name
        promise = plan.prediction
        numbers = (time_text(promise.step_s), f"{promise.tokens_per_s:,.0f}") if promise else ("", "")
        moving = "" if plan is found.before else str(found.moved(plan).moving)
        table.add_row(name, *numbers, str(plan.config.world_size), moving, f"{degrees(plan)}: {layers_by_cluster(plan)}")
    moves = found.moves
    lines = [
        f"Lost: {', '.join(map(place_text, found.lost))}.",
        f"{moves.moving} of {moves.ranks} ranks move; {moves.staying} find their weights on their device. "
        f"Weights to bring: {size_text(moves.nbytes)} (the optimizer's state beside).",
    ]
    lines += [
        f"{place_text(old)} is {place_text(new)} now (host {found.hosts[place_text(new)]})."
        for old, new in found.left.renumbered.items()
    ]
    return Group(table, Text(), *(Text(line) for line in (*lines, *found.notes)))
