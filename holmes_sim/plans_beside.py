"""Several plans beside each other: of alike replicas, of unlike pipelines or with two sets of ranks, each with a simulated
step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from holmes_sim import commands, unlike_pipelines
from holmes_sim.disaggregated import simulate_disaggregated
from holmes_sim.intervals import StepRange, is_fitted, step_range
from holmes_sim.resolution import resolution
from sim.disaggregation.plan import DisaggregatedPlan, DisaggregatedPrediction
from sim.formats import disaggregatedfile, pipelinesfile, planfile
from sim.formats.config_facts import config_facts
from sim.plan.pipelines import PipelinesPlan
from sim.plan.plan import Plan
from sim.plan.prediction import Prediction
from sim.units import Seconds

FORMAT = "holmes-sim/plans-beside/1"
AnyPlan: TypeAlias = Plan | PipelinesPlan | DisaggregatedPlan


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of plans. name: what of the ranks may be unlike; digest: of a plan, as in its timelines; prediction: of a new
    simulation of its step; pipelines: the plans of alike replicas of which it consists."""

    name: str
    digest: Callable[[Any], str]
    prediction: Callable[[Any], Prediction | DisaggregatedPrediction]
    pipelines: Callable[[Any], tuple[Plan, ...]]


KINDS: dict[type[AnyPlan], Kind] = {
    Plan: Kind("alike replicas", planfile.digest, lambda plan: commands.simulate(plan).prediction, lambda plan: (plan,)),
    PipelinesPlan: Kind(
        "unlike pipelines",
        pipelinesfile.digest,
        lambda plan: unlike_pipelines.simulate_pipelines(plan).prediction,
        lambda plan: plan.pipelines,
    ),
    DisaggregatedPlan: Kind(
        "attention and experts apart",
        disaggregatedfile.digest,
        lambda plan: simulate_disaggregated(plan).prediction,
        lambda plan: (),
    ),
}
"""The kinds of plans, by the class of a plan."""


@dataclass(frozen=True, slots=True)
class SimulatedPlan:
    """A plan by the name of its file, and the prediction of a new simulation of its step."""

    name: str
    plan: AnyPlan
    prediction: Prediction | DisaggregatedPrediction

    @property
    def kind(self) -> Kind:
        """The kind of the plan."""
        return KINDS[type(self.plan)]

    @property
    def devices(self) -> int:
        """Devices that the plan uses."""
        return len(self.plan.placement)

    @property
    def predicted_s(self) -> Seconds | None:
        """The step in the file; None without one."""
        return self.plan.prediction.step_s if self.plan.prediction is not None else None

    @property
    def memory(self) -> float:
        """Peak memory in bytes of the rank that needs most."""
        return max(self.prediction.peak_memory_bytes)

    @property
    def pipelines(self) -> tuple[Plan, ...]:
        """The plan, or those of which unlike pipelines consist; none for attention and experts apart."""
        return self.kind.pipelines(self.plan)

    @property
    def range(self) -> StepRange | None:
        """The range of the measured step; None for attention and experts apart, of which no run was compared."""
        return None if isinstance(self.plan, DisaggregatedPlan) else step_range(self.prediction.step_s, self.plan)

    def facts(self) -> dict[str, Any]:
        """The plan and its numbers as plain data, but for the comparison with others."""
        expected = self.range.facts() if self.range else {"step_range_s": None, "guessed_rates": []}
        return {
            "name": self.name,
            "kind": self.kind.name,
            "plan_digest": self.kind.digest(self.plan),
            "step_s": self.prediction.step_s,
            **expected,
            "predicted_s": self.predicted_s,
            "tokens_per_s": self.prediction.tokens_per_s,
            "mfu": self.prediction.mfu,
            "peak_memory_bytes": self.memory,
            "devices": self.devices,
            "global_batch_size": self.plan.workload.global_batch_size,
            "configs": [config_facts(one.config, one.workload.routing) for one in self.pipelines],
        }


@dataclass(frozen=True, slots=True)
class PlansBeside:
    """Two plans or more, with most tokens a second first."""

    rows: tuple[SimulatedPlan, ...]

    def slower(self, row: SimulatedPlan) -> float:
        """The seconds of a token over those of the fastest plan, - 1."""
        return self.rows[0].prediction.tokens_per_s / row.prediction.tokens_per_s - 1

    def is_close(self, row: SimulatedPlan) -> bool:
        """Whether the difference from the fastest plan is too small to order both (`holmes_sim.resolution`)."""
        return 0 < self.slower(row) < self.least_ratio - 1

    @property
    def least_ratio(self) -> float:
        """The ratio of two steps from which their order is right often enough."""
        several = any(len({(one.cluster, one.node) for one in row.plan.placement}) > 1 for row in self.rows)
        return resolution(is_fitted(self.rows[0].plan.topology), several)

    @property
    def unlike(self) -> tuple[str, ...]:
        """What the plans do not have in common and a comparison should: fleet, or workload."""
        first = self.rows[0].plan
        fleets = any(row.plan.fleet != first.fleet for row in self.rows)
        trained = any(
            replace(row.plan.workload, global_batch_size=1) != replace(first.workload, global_batch_size=1) for row in self.rows
        )
        batches = any(row.plan.workload.global_batch_size != first.workload.global_batch_size for row in self.rows)
        found = (("fleets", fleets), ("models or sequences", trained), ("batches", batches))
        return tuple(name for name, differ in found if differ)

    def facts(self) -> dict[str, Any]:
        """The comparison as plain data."""
        rows = [
            row.facts()
            | {"slower_than_best": self.slower(row), "told_apart_from_best": not self.is_close(row) if index else None}
            for index, row in enumerate(self.rows)
        ]
        return {"format": FORMAT, "rows": rows, "unlike": list(self.unlike)}


def simulated(name: str, plan: AnyPlan) -> SimulatedPlan:
    """Simulate a step of a plan of any kind."""
    return SimulatedPlan(name, plan, KINDS[type(plan)].prediction(plan))


def compare_plans(plans: Mapping[str, AnyPlan]) -> PlansBeside:
    """Simulate plans, by their names, and put them beside each other."""
    rows = (simulated(name, plan) for name, plan in plans.items())
    return PlansBeside(tuple(sorted(rows, key=lambda row: -row.prediction.tokens_per_s)))


def read_plans(files: list[str]) -> dict[str, AnyPlan]:
    """The plans of files, by file name; empty where one of them is something else, or one file alone is given.

    Raises PlanError, TopologyError."""
    if len(files) < 2 or not all(Path(name).is_file() for name in files):
        return {}
    read = {name: unlike_pipelines.read_anything(name) for name in files}
    plans = {name: plan for name, plan in read.items() if isinstance(plan, AnyPlan)}
    return plans if len(plans) == len(files) else {}
