"""Section: warnings about a plan of islands."""

from __future__ import annotations

from holmes_sim.reporting.islands_contents import IslandsContents
from holmes_sim.reporting.sections.warnings import sentences
from holmes_sim.warnings import islands_warnings

NAME = "warnings"
TITLE = "Warnings"
ORDER = 40


def html(contents: IslandsContents) -> str:
    """A list of sentences, with the sources of each on demand."""
    return sentences(islands_warnings(contents.plan, contents.run.prediction.period_s))
