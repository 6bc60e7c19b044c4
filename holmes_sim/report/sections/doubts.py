"""What to doubt."""

from __future__ import annotations

from holmes_sim.report.doubts import doubts
from holmes_sim.report.markup import listing
from holmes_sim.report.study import Study

NAME = "warnings"
TITLE = "Warnings"
ORDER = 10


def html(study: Study) -> str:
    """A list of sentences."""
    found = tuple(doubts(study))
    return listing(found, "warnings") if found else '<p class="fine">None: memory has room, and all efficiencies were measured.</p>'
