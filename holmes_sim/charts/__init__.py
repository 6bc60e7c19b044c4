"""Charts: timelines of simulated and measured steps, fleet, placement, comparison of strategies, Pareto front, sweeps, faults,
goodput, rooflines.

This is the only folder that uses matplotlib. Every function returns a `Figure` and does not change matplotlib's global state. A
notebook shows a figure, `save` writes it.
"""

from __future__ import annotations

from holmes_sim.charts.comparison import comparison
from holmes_sim.charts.distribution import distribution
from holmes_sim.charts.fleet import placement, topology
from holmes_sim.charts.front import front
from holmes_sim.charts.goodput import goodput
from holmes_sim.charts.islands_front import islands_front
from holmes_sim.charts.measurement import measurement
from holmes_sim.charts.outer_period import outer_periods
from holmes_sim.charts.pipeline import pipeline, timeline
from holmes_sim.charts.roofline import roofline
from holmes_sim.charts.style import ENDINGS, ending, save
from holmes_sim.charts.sweep import axes_of, sweep
from holmes_sim.charts.trunk_bandwidths import trunk_bandwidths
from holmes_sim.charts.validation import validation

__all__ = [
    "ENDINGS",
    "axes_of",
    "comparison",
    "distribution",
    "ending",
    "front",
    "goodput",
    "islands_front",
    "measurement",
    "outer_periods",
    "pipeline",
    "placement",
    "roofline",
    "save",
    "sweep",
    "timeline",
    "topology",
    "trunk_bandwidths",
    "validation",
]
