"""Tables of a replan after the loss of nodes: the old and the new plans, and which ranks must move."""

from __future__ import annotations

from rich.console import Group
from rich.text import Text

from holmes_sim.printing.layouts import degrees, layers_by_cluster
from holmes_sim.printing.tables import grid
from holmes_sim.replanning import Replanned
from sim.formats.lost_nodes import place_text
from sim.units import size_text, time_text


def replanned(found: Replanned) -> Group:
    """Table of the plans, the ranks and bytes that move, and the nodes that have a new number."""
    table = grid("Plans", "name", "step", "tokens/s", "devices", "ranks that move", "layout")
    for name, plan in (("before", found.before), ("replanned", found.searched), ("no rank moves", found.stayed)):
        if plan is None:
            continue
        name = f"{name} (taken)" if plan is found.plan else name
        predicted = plan.prediction
        numbers = (time_text(predicted.step_s), f"{predicted.tokens_per_s:,.0f}") if predicted else ("", "")
        moving = "" if plan is found.before else str(found.moved(plan).moving)
        table.add_row(name, *numbers, str(plan.config.world_size), moving, f"{degrees(plan)}: {layers_by_cluster(plan)}")
    moves = found.moves
    lines = [
        f"Lost: {', '.join(map(place_text, found.lost))}.",
        f"{moves.moving} of {moves.ranks} ranks move; {moves.staying} keep the weights on their device. "
        f"Weights to transfer: {size_text(moves.nbytes)}, without the state of the optimizer.",
    ]
    lines += [
        f"{place_text(old)} is now {place_text(new)} (host {found.hosts[place_text(new)]})."
        for old, new in found.left.renumbered.items()
    ]
    return Group(table, Text(), *(Text(line) for line in (*lines, *found.notes)))
