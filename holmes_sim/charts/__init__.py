"""Pictures: the pipeline of a step, the fleet, and the placement of a plan on it.

The only folder that knows matplotlib. Everything here returns a `Figure` and leaves matplotlib's global state alone; a notebook
shows it, `save` writes it.
"""

from __future__ import annotations

from holmes_sim.charts.fleet import placement, topology
from holmes_sim.charts.pipeline import pipeline
from holmes_sim.charts.style import ENDINGS, save
from holmes_sim.charts.validation import validation

__all__ = ["ENDINGS", "pipeline", "placement", "save", "topology", "validation"]
