"""What the command line shows: tables for a terminal."""

from __future__ import annotations

from holmes_sim.printing.catalogue import catalogue, modules, topologies, topology
from holmes_sim.printing.comparisons import compared
from holmes_sim.printing.distributions import troubled
from holmes_sim.printing.explanations import explained
from holmes_sim.printing.fronts import front
from holmes_sim.printing.launches import launched
from holmes_sim.printing.measurements import held, timeline
from holmes_sim.printing.months import month
from holmes_sim.printing.plans import effort, groups, judged, planned, simulated
from holmes_sim.printing.profiles import profiled
from holmes_sim.printing.replans import replanned
from holmes_sim.printing.stacks import calibrated
from holmes_sim.printing.sweeps import studies, swept
from holmes_sim.printing.tables import console
from holmes_sim.printing.validations import validated
from holmes_sim.printing.whatifs import asked

__all__ = [
    "asked",
    "calibrated",
    "catalogue",
    "compared",
    "console",
    "effort",
    "explained",
    "front",
    "groups",
    "held",
    "judged",
    "launched",
    "modules",
    "month",
    "planned",
    "profiled",
    "replanned",
    "simulated",
    "studies",
    "swept",
    "timeline",
    "topologies",
    "topology",
    "troubled",
    "validated",
]
