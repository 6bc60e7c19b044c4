"""holmes-sim: simulate and plan the training of large models on heterogeneous clusters.

    import holmes_sim as hs
    topology = hs.load("topologies/holmes-hybrid-4.yaml")
    answer = hs.plan(topology)
    run = hs.simulate(answer.plan)

The names in `__all__` are the public API; everything else may change. Arguments of a wrong type raise a HolmesError with one
line (`holmes_sim.argument_types`).
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType
from typing import Any


def _check_neighbours() -> None:
    """Check that `sim` and `planner` are the packages installed with this one, since other code may use these common names.

    Runs before they are imported. Raises ImportError.
    """
    home = Path(__file__).resolve().parent.parent
    for name in ("sim", "planner"):
        spec = find_spec(name)
        found = Path(spec.origin).resolve().parent if spec is not None and spec.origin else None
        if found != home / name:
            where = f"found {found} first" if found else "it is not installed"
            raise ImportError(
                f"holmes_sim needs its own package {name!r} at {home / name}, but {where}; rename or move the other one"
            )


_check_neighbours()

_PUBLIC = {
    "load": "holmes_sim.commands",
    "edited": "sim.formats.edits",
    "require": "holmes_sim.requirements",
    "plan": "holmes_sim.commands",
    "plan_islands": "holmes_sim.islands",
    "simulate_islands": "holmes_sim.islands",
    "read_islands": "holmes_sim.islands",
    "simulate_disaggregated": "holmes_sim.disaggregated",
    "run_disaggregated": "holmes_sim.running_disaggregated",
    "read_disaggregated": "holmes_sim.disaggregated",
    "trunk_bandwidths": "holmes_sim.trunks",
    "trouble_islands": "holmes_sim.islands_trouble",
    "goodput_islands": "holmes_sim.islands_goodput",
    "whole_run_islands": "holmes_sim.islands_whole_runs",
    "simulate_pipelines": "holmes_sim.unlike_pipelines",
    "read_pipelines": "holmes_sim.unlike_pipelines",
    "compare": "holmes_sim.comparisons",
    "compare_targets": "holmes_sim.comparisons",
    "sweep": "holmes_sim.sweeping.sweep",
    "what_if": "holmes_sim.whatif",
    "pareto": "holmes_sim.front",
    "pareto_islands": "holmes_sim.islands_front",
    "shortlist": "holmes_sim.own_runs",
    "calibrate": "holmes_sim.own_runs",
    "simulate": "holmes_sim.commands",
    "explain": "holmes_sim.commands",
    "score": "holmes_sim.scoring",
    "report": "holmes_sim.reporting",
    "export": "holmes_sim.exporting",
    "import_": "holmes_sim.imported",
    "list": "holmes_sim.lists",
    "trouble": "holmes_sim.distribution",
    "goodput": "holmes_sim.month",
    "whole_run": "holmes_sim.whole_runs",
    "replan": "holmes_sim.replanning",
    "place_experts": "holmes_sim.expert_placement",
    "read": "holmes_sim.commands",
    "read_plan": "holmes_sim.commands",
    "measured_step": "holmes_sim.measurement",
    "run_here": "holmes_sim.running",
    "run_in_lab": "holmes_sim.running",
    "RunOptions": "holmes_sim.torch_backend.run_options",
    "write": "holmes_sim.files",
    "Wishes": "planner.request",
    "Topology": "sim.hardware.topology",
    "Plan": "sim.plan.plan",
    "IslandsPlan": "sim.plan.islands",
    "DisaggregatedPlan": "sim.disaggregation.plan",
    "PipelinesPlan": "sim.plan.pipelines",
    "Sync": "sim.sync",
    "Timeline": "sim.engine.timeline",
    "HolmesError": "sim.errors",
    "Infeasible": "sim.errors",
}
_MODULES = ("charts", "validation")
"""Modules that are public as a whole: `hs.charts.sweep(found)`."""
__all__ = [*_PUBLIC, *_MODULES]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that the command line starts fast."""
    if name == "__version__":
        return import_module("sim").__version__
    if name in _MODULES:
        return import_module(f"holmes_sim.{name}")
    if name in _PUBLIC:
        found = getattr(import_module(_PUBLIC[name]), name)
        return import_module("holmes_sim.argument_types").checked(name, found) if isinstance(found, FunctionType) else found
    raise AttributeError(f"module 'holmes_sim' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
