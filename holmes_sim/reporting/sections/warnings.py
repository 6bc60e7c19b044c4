"""Section: warnings about the plan."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from holmes_sim.reporting.contents import Contents
from holmes_sim.reporting.markup import details, listing
from holmes_sim.warnings import PlanWarning, plan_warnings

NAME = "warnings"
TITLE = "Warnings"
ORDER = 10


def html(contents: Contents) -> str:
    """A list of sentences, with the sources of each on demand."""
    return sentences(plan_warnings(contents.plan, contents.run.prediction))


def sentences(warnings: Iterable[PlanWarning]) -> str:
    """Warnings as a list, or a sentence that says that there are none."""
    found = "".join(
        f"<li>{escape(warning.text)}{details('Sources', listing(warning.sources)) if warning.sources else ''}</li>"
        for warning in warnings
    )
    return (
        f'<ul class="warnings">{found}</ul>' if found else "<p>None: memory is below its limit, efficiencies were measured.</p>"
    )
