"""Lower bounds of all plans of a large fleet, in a second process from the draft on, while the first plan is sought.

On very large fleets the first plan takes most of the time limit, and leaves the proof no time. The bounds need none: those of
plans with mixed stages are computed below the step of the draft, and those of whole stages up to the lower of both, because the
certificate takes the least. No plan is simulated. Without a second process they are computed after the first plan, below its
step and before the proof, which would take longer for the same bounds because it looks for plans, too."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType
from typing import NamedTuple

from planner.bounds.mixed_deadline import MixedBound, mixed_bound
from planner.costs.context import PlanningContext
from planner.placement.simulation import step
from planner.request import Request
from planner.search.branch_and_bound import Proof
from planner.search.budgets import Budgets
from planner.search.candidates import Candidate
from planner.search.certificate import mixed_seconds, proof_seconds, work_of_mixed
from planner.search.improvement import Improvement
from planner.search.incumbent import Incumbent
from planner.search.mixed import mixed_placements
from planner.second_process import SecondProcess, has_free_core
from planner.space.shape import Shape
from sim.units import Seconds

EARLY_FROM = 2_049
"""Least number of devices for which the process is started. Guess: on fewer, the proof has time after the first plan, and a
process is better used for unlike pipelines."""
OWN_SHARE = 0.8
"""Fraction of the seconds that are left which the process may use (a guess). The search reserves some for plans that take long
to simulate, and would end the process before it has an answer."""
ALONE_SHARE = 0.2
"""Fraction of the time limit that the first plan leaves for the bounds, beside `Budgets.proof_share`, where there is no second
process (a guess). With less, the bounds of 102,400 devices of eight types are not done within 50 s."""
UNSEARCHED = Budgets(programmes=0, improved_estimates=0)
"""Budgets of a proof that looks for no plans."""


class Bounds(NamedTuple):
    """Lower bounds of plans with mixed stages and of whole stages, the layout that holds the second one (empty where none is
    below the first), and whether the time limit ended the proof."""

    mixed: MixedBound
    whole: Seconds
    least_layout: str
    cut_off: bool


@dataclass(slots=True)
class EarlyBounds:
    """The bounds for a request. It is a context manager, which ends its process."""

    context: PlanningContext
    shapes: Iterable[Shape]
    _open: ExitStack = field(default_factory=ExitStack)
    _second: SecondProcess[Bounds] | None = None
    _reserved: Seconds | None = None
    _found: Bounds | None = None

    def __enter__(self) -> EarlyBounds:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._open.close()

    @property
    def has_begun(self) -> bool:
        """Whether the bounds are computed: in a second process, or in this one once there is a first plan."""
        return self._second is not None or self._reserved is not None

    def begin(self, incumbent: Incumbent) -> None:
        """Begin below the step of the draft, where the fleet is large; without a second process, wait for the first plan."""
        request, draft = incumbent.request, incumbent.draft
        is_small = request.topology.fleet.devices < EARLY_FROM
        if draft is None or is_small or self.context.every_step or self.context.punctual or work_of_mixed(incumbent) is None:
            return
        left = OWN_SHARE * (incumbent.limit.seconds_left + proof_seconds(incumbent))
        if not has_free_core():
            self._reserved = ALONE_SHARE * request.time_limit if math.isfinite(request.time_limit) else 0.0
            incumbent.limit.reserve(self._reserved)
        elif left > 0:
            call = partial(bounds_below, self.context, replace(request, time_limit=left), tuple(self.shapes), step(draft))
            self._second = self._open.enter_context(SecondProcess(call))

    def after_plan(self, incumbent: Incumbent) -> None:
        """Compute the bounds below the first plan's step in this process, where there is no second one."""
        if self._reserved is None:
            return
        incumbent.limit.reserve(-self._reserved)
        if incumbent.best is not None and not incumbent.limit.is_up():
            incumbent.report("bounding all plans")
            quiet = copy.copy(self.context)  # its steps are not those of the search
            quiet.watch = lambda state: None
            self._found = _bounds(quiet, tuple(self.shapes), incumbent.cutoff)

    def collect(self, incumbent: Incumbent) -> Bounds | None:
        """The bounds, at most the best step; None where they were not computed."""
        found = self._found
        if self._second is not None:
            found = self._second.answer() if self._second.ends(incumbent.limit.seconds_left) else None
        if found is None:
            return None
        incumbent.limit.reached |= found.cut_off
        return found._replace(mixed=found.mixed._replace(seconds=min(found.mixed.seconds, incumbent.cutoff)))


@dataclass(slots=True)
class Bounding(Incumbent):
    """An incumbent without plans, for bounds up to `below` seconds."""

    below: Seconds = math.inf

    @property
    def cutoff(self) -> float:
        """Seconds up to which bounds are raised."""
        return self.below

    @property
    def target(self) -> float:
        """The same."""
        return self.below

    def add(self, candidates: Iterable[Candidate]) -> None:
        """Nothing: no plan is simulated."""

    def offer(self, shape: Shape, stages: tuple[tuple[str, int], ...]) -> bool:
        """Nothing, so the pipeline is not in `seen`."""
        return False

    def simulate_pool(self, tries: int, doubtful: bool = False) -> None:
        """Nothing."""


def is_worth_more(incumbent: Incumbent, mixed: MixedBound) -> bool:
    """Whether plans with mixed stages are also searched and ruled out one by one (`planner.search.mixed_proof`): where their
    bound is below the target, and there is time."""
    return mixed.seconds < incumbent.target and incumbent.limit.seconds_left > mixed_seconds(incumbent)


def higher(one: MixedBound | None, other: MixedBound | None) -> MixedBound | None:
    """The higher of two bounds of the same plans."""
    return max(filter(None, (one, other)), key=lambda bound: bound.seconds, default=None)


def bounds_below(known: PlanningContext, request: Request, shapes: tuple[Shape, ...], seconds: Seconds) -> Bounds:
    """The bounds of a request, up to some seconds. shapes: those of pipelines of whole stages; known: a context of the same
    topology and workload."""
    return _bounds(known.of(request), shapes, seconds)


def _bounds(context: PlanningContext, shapes: tuple[Shape, ...], seconds: Seconds) -> Bounds:
    """As `bounds_below`, with the costs that a context knows, and within its time limit."""
    mixed = mixed_bound(context, mixed_placements(context.request), seconds, context.limit)
    incumbent = Bounding(context.request, context, UNSEARCHED, context.limit, below=mixed.seconds)
    proof = Proof(incumbent, Improvement(incumbent))
    left = proof.run(list(shapes))
    whole = min([mixed.seconds, *proof.settled, *left])
    return Bounds(mixed._replace(left=()), whole, proof.least_layout, context.limit.reached)
