"""Section: how to launch the islands with each target that can express them, and why others cannot."""

from __future__ import annotations

from html import escape

from holmes_sim import exporters
from holmes_sim.reporting.islands_contents import IslandsContents
from holmes_sim.reporting.markup import details, listing
from holmes_sim.reporting.sections.launch import how, refusals

NAME = "launch"
TITLE = "How to launch"
ORDER = 60


def html(contents: IslandsContents) -> str:
    """For each target a command line and its next steps; assumptions; reasons why targets refuse the plan."""
    parts = []
    for target in contents.targets:
        exporter = exporters.islands(target.name)
        if exporter is not None and not target.refused:
            parts.append(f"<h3>{escape(exporter.ISLANDS_TITLE)}</h3>{how(contents.file, target)}")
    if contents.assumed:
        parts.append(details("Assumptions about hosts (not in the topology)", listing(contents.assumed)))
    return "".join(parts) + refusals(contents.targets)
