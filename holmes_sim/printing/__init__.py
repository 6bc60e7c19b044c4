"""Terminal output of the command line: tables and sentences, printed with rich."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holmes_sim.printing.catalogues import catalogue, frameworks, modules, schemas, topologies, topology
    from holmes_sim.printing.certificates import unlike_degrees
    from holmes_sim.printing.checks import checked
    from holmes_sim.printing.comparisons import compared
    from holmes_sim.printing.disaggregated import measured_disaggregated, simulated_disaggregated
    from holmes_sim.printing.distributions import step_distribution
    from holmes_sim.printing.efforts import effort as search_effort
    from holmes_sim.printing.expert_placements import experts_placed
    from holmes_sim.printing.explanations import explained
    from holmes_sim.printing.fronts import front
    from holmes_sim.printing.island_runs import measured_islands
    from holmes_sim.printing.islands import planned_islands, simulated_islands
    from holmes_sim.printing.islands_faults import elastic_islands, islands_goodput, islands_trouble
    from holmes_sim.printing.islands_fronts import islands_front
    from holmes_sim.printing.launches import launched
    from holmes_sim.printing.measurements import measured, timeline
    from holmes_sim.printing.months import goodput
    from holmes_sim.printing.pipelines import simulated_pipelines, unlike_pipelines
    from holmes_sim.printing.plans import effort, groups, planned, simulated, verdicts
    from holmes_sim.printing.plans_beside import plans_compared
    from holmes_sim.printing.profiles import profiled
    from holmes_sim.printing.replans import replanned
    from holmes_sim.printing.requirements import required
    from holmes_sim.printing.scores import scored
    from holmes_sim.printing.shortlists import proposed, runs
    from holmes_sim.printing.stacks import calibrated
    from holmes_sim.printing.sweeps import studies, swept
    from holmes_sim.printing.trunk_sweeps import trunk_bandwidths
    from holmes_sim.printing.validations import validated
    from holmes_sim.printing.verifications import verified
    from holmes_sim.printing.whatifs import what_if
    from holmes_sim.printing.whole_runs import islands_whole_run, whole_run

__all__ = [
    "calibrated",
    "catalogue",
    "checked",
    "compared",
    "effort",
    "elastic_islands",
    "experts_placed",
    "explained",
    "frameworks",
    "front",
    "goodput",
    "groups",
    "islands_front",
    "islands_goodput",
    "islands_trouble",
    "islands_whole_run",
    "launched",
    "measured",
    "measured_disaggregated",
    "measured_islands",
    "modules",
    "planned",
    "planned_islands",
    "plans_compared",
    "profiled",
    "proposed",
    "replanned",
    "required",
    "runs",
    "schemas",
    "scored",
    "search_effort",
    "simulated",
    "simulated_disaggregated",
    "simulated_islands",
    "simulated_pipelines",
    "step_distribution",
    "studies",
    "swept",
    "timeline",
    "topologies",
    "topology",
    "trunk_bandwidths",
    "unlike_degrees",
    "unlike_pipelines",
    "validated",
    "verdicts",
    "verified",
    "what_if",
    "whole_run",
]

_MODULES = {
    "catalogues": "catalogue frameworks modules schemas topologies topology",
    "certificates": "unlike_degrees",
    "checks": "checked",
    "comparisons": "compared",
    "disaggregated": "measured_disaggregated simulated_disaggregated",
    "distributions": "step_distribution",
    "expert_placements": "experts_placed",
    "explanations": "explained",
    "fronts": "front",
    "island_runs": "measured_islands",
    "islands": "planned_islands simulated_islands",
    "islands_fronts": "islands_front",
    "islands_faults": "elastic_islands islands_goodput islands_trouble",
    "launches": "launched",
    "measurements": "measured timeline",
    "months": "goodput",
    "pipelines": "simulated_pipelines unlike_pipelines",
    "plans": "effort groups planned simulated verdicts",
    "plans_beside": "plans_compared",
    "profiles": "profiled",
    "replans": "replanned",
    "requirements": "required",
    "scores": "scored",
    "shortlists": "proposed runs",
    "stacks": "calibrated",
    "sweeps": "studies swept",
    "trunk_sweeps": "trunk_bandwidths",
    "validations": "validated",
    "verifications": "verified",
    "whatifs": "what_if",
    "whole_runs": "islands_whole_run whole_run",
}
"""The functions of each module, which is imported when one of them is first used: all of them take a fifth of a second."""
_PLACES = {name: (module, name) for module, names in _MODULES.items() for name in names.split()}
_PLACES["search_effort"] = "efforts", "effort"


def __getattr__(name: str) -> Any:
    """A function of one of the modules, which is imported now."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    place = _PLACES[name][0]
    module = importlib.import_module(f"{__name__}.{place}")
    globals().update({one: getattr(module, own) for one, (other, own) in _PLACES.items() if other == place})
    return globals()[name]
