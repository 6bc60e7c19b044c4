"""Pictures: the pipeline of a step, simulated and measured, the fleet, the placement of a plan on it, strategies beside each
other, trade-offs, sweeps, the step in trouble, a month of it, rooflines of its stages.

The only folder that knows matplotlib. Everything here returns a `Figure` and leaves matplotlib's global state alone; a notebook
shows it, `save` writes it.
"""

from __future__ import annotations

from holmes_sim.charts.comparison import comparison
from holmes_sim.charts.distribution import distribution
from holmes_sim.charts.fleet import placement, topology
from holmes_sim.charts.front import front
from holmes_sim.charts.goodput import goodput
from holmes_sim.charts.measurement import measurement
from holmes_sim.charts.pipeline import pipeline, timeline
from holmes_sim.charts.roofline import roofline
from holmes_sim.charts.style import ENDINGS, ending, save
from holmes_sim.charts.sweep import axes_of, sweep
from holmes_sim.charts.validation import validation

__all__ = [
    "ENDINGS",
    "axes_of",
    "comparison",
    "distribution",
    "ending",
    "front",
    "goodput",
    "measurement",
    "pipeline",
    "placement",
    "roofline",
    "save",
    "sweep",
    "timeline",
    "topology",
    "validation",
]
