"""The range in which a measured step time is expected with a probability of 80 %, from runs that no fit saw.

The range is that of measured / predicted between the 10 % and the 90 % quantile of such runs, with equal weight for each
source (a split conformal interval, Vovk et al. 2005, for a source like these). For the default stack these are the 542 runs of
validation/, each source predicted by constants fitted to the other twelve, and the 553 of validation/layouts, to which the
default was not fitted. For a fitted stack they are the same runs, predicted by fits without the run's model family, tp,
pp or number of nodes. If each source is predicted by the quantiles of the others, the ranges hold 79 % and 78 % of the
runs (mean over 15 sources; of a single source between 20 and 100 %).
"""

from __future__ import annotations

from sim.hardware.topology import Topology
from sim.units import Seconds, time_text

DEFAULT_RANGE = (0.87, 1.44)
"""Measured / predicted step with the default stack. Most steps above the range are of software unlike the fitted one."""
FITTED_RANGE = (0.90, 1.19)
"""Measured / predicted step with a stack that was fitted to runs of the same software."""


def step_range(step: Seconds, topology: Topology) -> tuple[Seconds, Seconds]:
    """(least, largest) measured step that is expected in 80 % of runs for a predicted step.

    Numbers of a stack that were written by hand and not fitted to runs have the range of the default stack."""
    low, high = FITTED_RANGE if topology.facts().get("stack", {}).get("runs") else DEFAULT_RANGE
    return low * step, high * step


def range_text(step: Seconds, topology: Topology) -> str:
    """The range as text: `4.99 s to 8.26 s measured`."""
    low, high = (time_text(float(f"{seconds:.3g}")) for seconds in step_range(step, topology))
    return f"{low} to {high} measured"
