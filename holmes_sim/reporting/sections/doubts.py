"""What to doubt."""

from __future__ import annotations

from html import escape

from holmes_sim.reporting.doubts import doubts
from holmes_sim.reporting.markup import details, listing
from holmes_sim.reporting.study import Study

NAME = "warnings"
TITLE = "Warnings"
ORDER = 10


def html(study: Study) -> str:
    """A list of sentences, each with its sources on demand."""
    found = "".join(
        f"<li>{escape(doubt.text)}{details('What it rests on', listing(doubt.sources)) if doubt.sources else ''}</li>"
        for doubt in doubts(study)
    )
    return f'<ul class="warnings">{found}</ul>' if found else "<p>None: memory has room, and efficiencies were measured.</p>"
