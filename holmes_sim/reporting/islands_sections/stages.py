"""Section: the pipeline stages of each island."""

from __future__ import annotations

from html import escape

from holmes_sim.printing import plans
from holmes_sim.reporting.islands_contents import IslandsContents
from holmes_sim.reporting.markup import island_chip
from holmes_sim.reporting.sections.stages import stages
from planner.islands.node_ranges import island_text

NAME = "stages"
TITLE = "Stages of each island"
ORDER = 50


def html(contents: IslandsContents) -> str:
    """For each island its layout and the table of its stages."""
    parts = [
        "<p>Times are those of an inner step without exchanges, of a rank of the slowest class of each stage: compute, exposed "
        "(waiting for the network), bubble (waiting for other ranks).</p>"
    ]
    for index, (island, step) in enumerate(zip(contents.plan.islands, contents.steps, strict=True)):
        layout = escape(plans.layout(island).replace("   (", " ("))
        peaks, caption = step.prediction.peak_memory_bytes, f"Stages of island {index}"
        rows = stages(step.plan, step.pipeline_ranks, peaks, f"islands/{index}/", caption)
        head = f"{island_chip(index)} Island {index}: {escape(island_text(island))}"
        parts.append(f'<h3 id="island-{index}">{head}</h3><p>{layout}</p>{rows}')
    return "".join(parts)
