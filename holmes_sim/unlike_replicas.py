"""What unlike pipelines save beside a plan of alike replicas: a bound on all of them, and a search in the time left."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from holmes_sim import exporters, files
from planner.bounds.pipeline_modes import modes
from planner.bounds.unlike_pipelines import SPACE, bound_and_counted
from planner.costs.context import PlanningContext
from planner.limits import NO_LIMITS
from planner.pipelines import search
from planner.pipelines.assembly import step_of
from planner.pipelines.budgets import BRIEF, USUAL
from planner.placement.simulation import step
from planner.request import Request, Wishes
from planner.target import ANY
from planner.time_limit import TimeLimit
from sim.errors import HolmesError
from sim.formats import pipelinesfile
from sim.plan.certificate import SpaceBound
from sim.plan.pipelines import PipelinesPlan
from sim.plan.plan import Plan
from sim.units import Seconds, time_text

LONGEST_S: Seconds = 30.0
"""Most seconds of the time limit that are left for the search (a guess): its work is counted, and mostly takes less."""
SPARED = 0.3
"""Share of the time limit that the search for a plan of alike replicas leaves, where devices of its first plan are idle (a
guess): what it proves in the last third seldom makes its plan faster."""
IDLE = 0.02
"""Share of the fleet's peak from which on devices are idle (a guess)."""
LARGEST = 2_048
"""Number of devices of a fleet up to which unlike pipelines are searched (a guess): the limit of 50 s ends the search on larger
ones before it has plans of all parts, and takes that time from the proof."""
LARGEST_IN_USE = 512
"""The same where hardly any device is idle (a guess): on `hethub-768` nothing is found in 6 CPU seconds."""
BOTH = f"the searched layouts of alike replicas (`space` of the certificate, and of its `unlike_degrees` if known), and {SPACE}"
"""The plans of alike replicas and of unlike pipelines that one bound holds for, in one line."""
NONE = "no searched plan of alike replicas, and none of unlike pipelines,"
"""How the sentence about both kinds begins."""
CLOSED = 0.005
"""Gap of a bound up to which nothing holds it open, as for the search of a plan (`planner.search.budgets.Budgets`)."""
LEAST_GAIN = 0.01
"""Least saving of a step that is told (a guess)."""


@dataclass(frozen=True, slots=True)
class UnlikeReplicas:
    """What is known of unlike pipelines beside a plan of alike replicas with a step of `alike_s`.

    bound_s: no plan of `SPACE` takes less; infinite where memory has no room for one. counted: what this bound counts. plan:
    the fastest that was found and saves enough to be told, with its prediction and certificate. not_searched: why none was
    searched; empty where one was. cut_off: whether the time limit ended the search. alike_bound_s: no searched plan of alike
    replicas takes less, nor one of unlike degrees, if a bound on these is known; 0 without a certificate."""

    alike_s: Seconds
    bound_s: Seconds
    plan: PipelinesPlan | None = None
    not_searched: str = ""
    cut_off: bool = False
    alike_bound_s: Seconds = 0.0
    counted: str = ""

    @property
    def step(self) -> Seconds:
        """The step of the fastest plan: of unlike pipelines, where one was found, else of alike replicas."""
        return step_of(self.plan) if self.plan is not None else self.alike_s

    @property
    def saved(self) -> float:
        """What unlike pipelines save of the step; 0 where none was found."""
        return 1 - self.step / self.alike_s

    @property
    def certificate(self) -> SpaceBound:
        """The bound, for the fastest plan."""
        return SpaceBound(self.step, self.bound_s, SPACE, counted=self.counted)

    @property
    def both(self) -> SpaceBound:
        """One bound for the searched plans of alike replicas and for unlike pipelines, for the fastest plan of both."""
        counted = self.counted if self.bound_s < self.alike_bound_s else ""
        return SpaceBound(self.step, min(self.alike_bound_s, self.bound_s), BOTH, NONE, counted)

    @property
    def held_open(self) -> str:
        """The plans that hold the bound for both kinds open, in words; empty where it is not (`CLOSED`)."""
        if self.both.gap <= CLOSED * (1 + 1e-9):
            return ""
        return "unlike pipelines" if self.bound_s < self.alike_bound_s else "alike replicas"

    @property
    def told(self) -> str:
        """The line about the bound for both kinds below the certificate of alike replicas; empty where a plan was found, whose
        line has it, or where one of the bounds is not known."""
        if self.plan is not None or math.isinf(self.bound_s) or not self.alike_bound_s:
            return ""
        least, counted = time_text(float(f"{self.both.lower_bound_s:.4g}")), self.both.counted
        if not counted:
            return f"If replicas may be unlike pipelines, no plan takes less than {least} either."
        far = f"counting {counted} only: at most {self.both.gap:.1%} of the step could be saved"
        return f"If replicas may be unlike pipelines, no plan takes less than {least}, {far}."

    def __str__(self) -> str:
        """The line that tells of a plan that was found; empty without one."""
        if self.plan is None:
            return ""
        return (
            f"Faster, but no framework runs it: {len(self.plan.pipelines)} unlike pipelines ({in_words(self.plan.pipelines)}), "
            f"{time_text(self.step)}, {self.saved:.0%} less time; {self._both_told}. `-o FILE` also writes it, for "
            "`holmes-sim run` (`export --to torchrun` starts it on all hosts); docs/files.md says what is modelled."
        )

    @property
    def explained(self) -> str:
        """Step, lower bound and gap in one line, the space in another, and the bound for both kinds of plans in a third."""
        if self.plan is not None:
            found = f"{time_text(self.step)}, {self.saved:.1%} less than alike replicas take"
        else:
            found = f"not searched: {self.not_searched}" if self.not_searched else f"none found that saves {LEAST_GAIN:.0%}"
            found += " before the time limit of their search" if self.cut_off else ""
        known = f"Unlike pipelines: {found}; {self.certificate}.\nTheir space: {SPACE}."
        return f"{known}\nOne certificate for both spaces: {self._both_told}."

    @property
    def _both_told(self) -> str:
        """The bound for both kinds, and what holds it open."""
        alike = max(1 - self.alike_bound_s / self.step, 0.0)
        alone = f" (alike replicas alone: {alike:.1%})" if self.held_open == "unlike pipelines" else ""
        return f"{self.both}" + (f"; {self.held_open} hold this open{alone}" if self.held_open else "")

    def facts(self) -> dict[str, Any]:
        """What is known as plain data (key `unlike_pipelines` of a plan)."""
        known = self.certificate.facts()
        return {
            "step_s": self.step if self.plan is not None else None,
            "lower_bound_s": None if math.isinf(self.bound_s) else self.bound_s,
            "gap": known["gap"],
            "space": SPACE,
            "not_searched": self.not_searched or None,
            "counted": known["counted"],
            "both": self.both.facts(),
            "held_open": self.held_open or None,
        }


def beside(file: Path) -> Path:
    """The file for a plan of unlike pipelines beside that of a plan: `plan.pipelines.json` beside `plan.json`."""
    return file.with_name(f"{file.name.removesuffix('.json')}.pipelines.json")


def remove_former(file: Path) -> Path | None:
    """Remove the file beside that of a plan which an earlier plan wrote, so that it is not taken for one of the new plan.

    The removed file; None where there is none, or only a file of another kind, which stays."""
    return files.remove(beside(file), pipelinesfile.is_pipelines)


def in_words(pipelines: Iterable[Plan]) -> str:
    """The devices and samples of pipelines, those that are alike together."""
    sizes = ((len(one.placement), one.workload.global_batch_size) for one in pipelines)
    alike = Counter(
        f"{devices} device{'s' * (devices > 1)} with {samples} sample{'s' * (samples > 1)}" for devices, samples in sizes
    )
    return ", ".join(f"{number} on {text}{' each' * (number > 1)}" for text, number in alike.items())


def spared(request: Request, plan: Plan) -> Seconds:
    """Seconds of the time limit that the search needs after a plan of alike replicas, whose first one is given; 0 where nothing
    will be searched, or hardly any device is idle (`IDLE`): then the search has the time that is left."""
    if not is_wanted(request) or is_large(request) or not search.has_parts(request) or idle(request, plan) < IDLE:
        return 0.0
    return min(SPARED * request.time_limit, LONGEST_S)


def is_wanted(request: Request) -> bool:
    """Whether a request has no pins and limits, its model has such plans, and what must run its plan allows them: any training
    framework, which is then told that none runs them, none at all, or targets that start `holmes-sim run`."""
    is_free = request.wishes == Wishes() and request.limits == NO_LIMITS and not request.machines
    able = (ANY, *exporters.of_run())
    names = request.target.name.split(exporters.AND) if request.target is not None else ()
    return is_free and all(name in able for name in names) and search.is_modelled(request)


def is_large(request: Request) -> bool:
    """Whether a fleet has more devices than unlike pipelines are searched on (`LARGEST`)."""
    return request.topology.fleet.devices > LARGEST


def searched(
    request: Request,
    plan: Plan,
    seconds: Seconds,
    progress: Callable[[str], None] = lambda text: None,
    fastest_s: Seconds = math.inf,
) -> UnlikeReplicas | None:
    """What is known of unlike pipelines after a search, and their bound. Its work is counted, less where hardly any device is
    idle (`BRIEF`); it ends after some seconds at the latest.

    fastest_s: the step of another plan of alike replicas that no framework runs, but the torch backend: one of unlike pipelines
    must be faster than both. None where the request pins or limits something or asks for another target (`is_wanted`), or the
    model has no such plans. Nothing is searched on large fleets, where all nodes are of one cluster and hardly any device is
    idle (`IDLE`), or where it is proved that no pipelines, or none on whole nodes of their own, which the search tries, can
    save `LEAST_GAIN`."""
    if not is_wanted(request) or seconds <= 0:
        return None
    uses_all = idle(request, plan) < IDLE
    limit, alike_s, budgets = TimeLimit(seconds), step(plan), BRIEF if uses_all else USUAL
    progress("unlike pipelines: lower bound")
    try:
        context = PlanningContext(request)
        every = modes(context)
        bound_s, counted = bound_and_counted(context, every)
        known = UnlikeReplicas(alike_s, bound_s, counted=counted)
        if is_large(request):
            return replace(known, not_searched=f"the fleet has more than {LARGEST:,} devices")
        if uses_all and request.topology.fleet.devices > LARGEST_IN_USE:
            return replace(known, not_searched=f"the plan uses nearly all of more than {LARGEST_IN_USE} devices")
        if len(list(request.clusters())) == 1 and uses_all:
            return replace(known, not_searched="all nodes are alike, and the plan uses nearly all devices")
        deadline = min(alike_s, fastest_s) * (1 - LEAST_GAIN)
        if why := search.why_none(request, deadline, limit, every):
            return replace(known, not_searched=f"no pipelines on whole nodes save {LEAST_GAIN:.0%}, {why}")
        if bound_s >= deadline:
            return replace(known, not_searched=f"none saves {LEAST_GAIN:.0%}, by their lower bound")
        found = search.best(request, deadline, limit, lambda text: progress(f"unlike pipelines: {text}"), every, budgets)
    except HolmesError:  # the plan itself is not concerned
        return None
    best = found.plan if found is not None else None
    known = replace(known, plan=best, cut_off=limit.is_up())
    if best is None:
        return known
    assert best.prediction is not None
    return replace(known, plan=best.annotated(best.prediction, known.certificate))


def idle(request: Request, plan: Plan) -> float:
    """Share of the peak of the devices that may be used whose devices a plan leaves idle."""
    precision = request.workload.precision
    whole = sum(cluster.devices * cluster.node.device.peak_of(precision) for cluster in request.clusters())
    return 1 - sum(plan.fleet.spec(device).peak_of(precision) for device in plan.placement) / whole
