"""Plans of unlike pipelines: read and simulate them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holmes_sim import commands, disaggregated, islands
from holmes_sim.results import confirms, report_facts
from sim.disaggregation.plan import DisaggregatedPlan
from sim.engine import symmetry
from sim.engine.engine import simulate
from sim.engine.timeline import Timeline
from sim.formats import pipelinesfile
from sim.hardware.topology import Topology
from sim.plan.islands import IslandsPlan
from sim.plan.pipelines import PipelinesPlan
from sim.plan.plan import Plan
from sim.plan.prediction import Prediction
from sim.results.explain import Explanation, explain
from sim.results.report import PipelineRankReport, of_pipelines, predict
from sim.units import Seconds, time_text


@dataclass(frozen=True, slots=True)
class SimulatedPipelines:
    """A simulated step of unlike pipelines: its timeline and prediction, the seconds of the pipeline ranks of each pipeline,
    and the seconds and rank classes of the simulation."""

    plan: PipelinesPlan
    timeline: Timeline
    prediction: Prediction
    pipeline_ranks: tuple[tuple[PipelineRankReport, ...], ...]
    seconds: Seconds
    classes: int

    @property
    def confirmed(self) -> bool | None:
        """Whether the simulation confirms the prediction of the plan; None if the plan has none."""
        return confirms(self.plan, self.timeline.step_s)

    def explanation(self) -> Explanation:
        """Where the seconds of the step go, by stage of each pipeline, and its critical path."""
        return explain(self.plan, self.timeline)

    def __repr__(self) -> str:
        return (
            f"{self.plan.topology.name}: {self.plan.workload.model.name} in {len(self.plan.pipelines)} unlike pipelines, a "
            f"simulated step of {time_text(self.prediction.step_s)}"
        )

    def facts(self) -> dict[str, Any]:
        """The report as plain data (format holmes-sim/report/1)."""
        ranks = len(self.plan.placement)
        found = {"seconds": self.seconds, "events": self.timeline.events, "ranks": ranks, "classes": self.classes}
        return report_facts(self.plan, self.prediction, found, self.confirmed)


def simulate_pipelines(plan: PipelinesPlan) -> SimulatedPipelines:
    """Simulate one step of a plan of unlike pipelines."""
    started = time.perf_counter()
    folded = symmetry.fold(plan)
    timeline = simulate(plan, folded)
    seconds = time.perf_counter() - started
    ranks = of_pipelines(plan, timeline)
    return SimulatedPipelines(plan, timeline, predict(plan, timeline), ranks, seconds, len(folded.representatives))


def read_pipelines(path: str | Path) -> PipelinesPlan:
    """Read a plan of unlike pipelines. Raises PlanError, TopologyError."""
    return pipelinesfile.load(path)


def read_every_kind(path: str | Path) -> Plan | IslandsPlan | PipelinesPlan | DisaggregatedPlan:
    """Read a plan, one of islands, of unlike pipelines or with two sets of ranks, whichever a file contains. Raises PlanError,
    TopologyError."""
    return read_pipelines(path) if has_pipelines(path) else disaggregated.read_any_plan(path)


def read_anything(what: str) -> Topology | Plan | IslandsPlan | PipelinesPlan | DisaggregatedPlan | Timeline:
    """Read whatever `show` shows: what a JSON file contains, a plan of unlike pipelines in YAML, or a topology from a file or
    by its name. Raises HolmesError."""
    return read_pipelines(what) if Path(what).is_file() and has_pipelines(what) else islands.read_any(what)


def has_pipelines(path: str | Path) -> bool:
    """Whether a file is a plan of unlike pipelines, told by its format key. Raises PlanError where it cannot be read."""
    return pipelinesfile.is_pipelines(commands.plan_text(path))
