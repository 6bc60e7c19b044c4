"""Section: the fleet as a drawing: every device in the colour of its stage, clusters side by side, trunks between them."""

from __future__ import annotations

from holmes_sim.charts.style import numbers
from holmes_sim.idle import idle_label
from holmes_sim.reporting.contents import Contents
from holmes_sim.reporting.drawing import Drawing, figure
from holmes_sim.reporting.markup import chip
from sim.plan.plan import Plan

NAME = "placement"
TITLE = "Topology and placement"
ORDER = 20


def html(contents: Contents) -> str:
    """Clusters, trunks and legend."""
    drawing = Drawing(contents.plan.fleet, contents.plan)
    folded = "<p>Neighbouring nodes with the same stages are drawn once, with their number.</p>" if drawing.is_folded else ""
    return figure(drawing) + legend(contents.plan) + folded


def legend(plan: Plan) -> str:
    """The layers of each stage, and the number of idle devices."""
    items = []
    for pp_rank in range(plan.config.pp):
        layers = [numbers(plan.stages[s].first, plan.stages[s].past_last).replace("-", "–") for s in plan.stages_of(pp_rank)]
        items.append(f"<li>{chip(pp_rank)} layers {', '.join(layers)}</li>")
    idle = plan.fleet.devices - plan.config.world_size
    if idle:
        items.append(f'<li><span class="chip" style="background:var(--idle)">&nbsp;</span> {idle_label(idle)}</li>')
    return f'<ul class="legend" aria-label="Stages">{"".join(items)}</ul>'
