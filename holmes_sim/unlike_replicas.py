"""How much faster unlike pipelines are than a plan that leaves devices idle: a search in the time left of the plan's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from holmes_sim import files
from planner.limits import NO_LIMITS
from planner.pipelines import search
from planner.placement.simulation import step
from planner.request import Request, Wishes
from planner.target import ANY
from planner.time_limit import TimeLimit
from sim.errors import HolmesError
from sim.formats import pipelinesfile
from sim.plan.pipelines import PipelinesPlan
from sim.plan.plan import Plan
from sim.units import Seconds, time_text

SHARE = 0.5
LEAST_S: Seconds = 2.0
LONGEST_S: Seconds = 30.0
"""Time limit of the search: a share of what the plan took, at least and at most so long (guesses). It pays on few fleets, and
nobody is to wait much longer for a plan because of it."""
IDLE = 0.02
"""Share of the fleet's peak that a plan must leave idle for a search (a guess): replicas that are alike seldom lose to others
where they use all devices."""
LEAST_GAIN = 0.01
"""Least saving of a step that is told (a guess)."""


@dataclass(frozen=True, slots=True)
class UnlikeReplicas:
    """A simulated plan of unlike pipelines, and what it saves of a plan's step."""

    plan: PipelinesPlan
    step: Seconds
    saved: float

    def __str__(self) -> str:
        words = (f"{len(one.placement)} devices with {one.workload.global_batch_size} samples" for one in self.plan.pipelines)
        return (
            f"Faster, but no framework runs it: {len(self.plan.pipelines)} unlike pipelines ({' and '.join(words)}), "
            f"{time_text(self.step)}, {self.saved:.0%} less time, without a bound. `-o FILE` also writes it, for "
            "`holmes-sim run`; docs/files.md says what is modelled."
        )


def beside(file: Path) -> Path:
    """The file for a plan of unlike pipelines beside that of a plan: `plan.pipelines.json` beside `plan.json`."""
    return file.with_name(f"{file.name.removesuffix('.json')}.pipelines.json")


def remove_former(file: Path) -> Path | None:
    """Remove the file beside that of a plan which an earlier plan wrote, so that it is not taken for one of the new plan.

    The removed file; None where there is none, or only a file of another kind, which stays."""
    return files.remove(beside(file), pipelinesfile.is_pipelines)


def allowed(spent: Seconds, left: Seconds) -> Seconds:
    """Time limit of the search after a plan that took `spent` seconds, where the time limit of both leaves so many."""
    return min(max(SHARE * spent, LEAST_S), LONGEST_S, left)


def searched(
    request: Request, plan: Plan, seconds: Seconds, progress: Callable[[str], None] = lambda text: None
) -> UnlikeReplicas | None:
    """A faster plan of unlike pipelines, found within some seconds (`allowed`); None where there is none.

    Nothing is searched where the request pins or limits something or asks for a launch target, or where the plan leaves hardly
    any device idle (`IDLE`)."""
    is_free = request.wishes == Wishes() and request.limits == NO_LIMITS and not request.machines
    if not is_free or request.target is None or request.target.name != ANY or idle(request, plan) < IDLE or seconds <= 0:
        return None
    limit = TimeLimit(seconds)
    try:
        found = search.best(request, step(plan) * (1 - LEAST_GAIN), limit, lambda text: progress(f"unlike pipelines: {text}"))
    except HolmesError:  # the plan itself is not concerned
        return None
    return UnlikeReplicas(found.plan, found.step_s, 1 - found.step_s / step(plan)) if found is not None else None


def idle(request: Request, plan: Plan) -> float:
    """Share of the peak of the devices that may be used whose devices a plan leaves idle."""
    precision = request.workload.precision
    whole = sum(cluster.devices * cluster.node.device.peak_of(precision) for cluster in request.clusters())
    return 1 - sum(plan.fleet.spec(device).peak_of(precision) for device in plan.placement) / whole
