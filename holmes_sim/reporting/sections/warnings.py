"""Section: warnings about the plan."""

from __future__ import annotations

from html import escape

from holmes_sim.reporting.contents import Contents
from holmes_sim.reporting.markup import details, listing
from holmes_sim.warnings import plan_warnings

NAME = "warnings"
TITLE = "Warnings"
ORDER = 10


def html(contents: Contents) -> str:
    """A list of sentences, with the sources of each on demand."""
    found = "".join(
        f"<li>{escape(warning.text)}{details('Sources', listing(warning.sources)) if warning.sources else ''}</li>"
        for warning in plan_warnings(contents.plan, contents.run.prediction)
    )
    return (
        f'<ul class="warnings">{found}</ul>' if found else "<p>None: memory is below its limit, efficiencies were measured.</p>"
    )
