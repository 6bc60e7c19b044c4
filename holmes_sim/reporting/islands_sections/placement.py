"""Section: the fleet as a drawing: every device in the colour of its island, clusters side by side, trunks between them."""

from __future__ import annotations

from html import escape

from holmes_sim.idle import idle_label
from holmes_sim.reporting.drawing import Drawing, figure
from holmes_sim.reporting.islands_contents import IslandsContents
from holmes_sim.reporting.markup import island_chip
from planner.islands.node_ranges import island_text

NAME = "placement"
TITLE = "Topology and islands"
ORDER = 10


def html(contents: IslandsContents) -> str:
    """Clusters, trunks and legend."""
    plan = contents.plan
    drawing = Drawing(plan.fleet, plan, "plan/islands/0/topology")
    items = [f"<li>{island_chip(index)} {escape(island_text(island))}</li>" for index, island in enumerate(plan.islands)]
    idle = plan.fleet.devices - sum(island.config.world_size for island in plan.islands)
    if idle:
        items.append(f'<li><span class="chip" style="background:var(--idle)">&nbsp;</span> {idle_label(idle)}</li>')
    legend = f'<ul class="legend" aria-label="Islands">{"".join(items)}</ul>'
    folded = "<p>Neighbouring nodes of the same islands are drawn once, with their number.</p>" if drawing.is_folded else ""
    return figure(drawing) + legend + folded
