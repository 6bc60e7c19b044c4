"""How much faster plans are that few or no training frameworks run: a short search without a launch target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from holmes_sim import exporters
from holmes_sim.torch_backend import supported
from planner import api
from planner.costs.context import PlanningContext
from planner.placement.simulation import step
from planner.request import Request
from planner.target import ANY
from sim.errors import HolmesError, NotSupported
from sim.plan.plan import Plan
from sim.units import Seconds, time_text

LONGEST_S: Seconds = 10.0
"""Time limit of the search (a guess)."""
LEAST_GAIN = 0.01
"""Least saving of a step that is told (a guess)."""
BACKEND = "holmes-sim run"
"""The command that runs plans with the torch backend."""


@dataclass(frozen=True, slots=True)
class Beyond:
    """A simulated plan that is faster than the one for a framework. `able`: the frameworks that run it, and `BACKEND`."""

    plan: Plan
    saved: float
    able: tuple[str, ...]

    @property
    def _target(self) -> str:
        """What `--for` needs to find the plan: the first framework that runs it, else `none`."""
        return next((name for name in self.able if name != BACKEND), "none")

    def __str__(self) -> str:
        config = self.plan.config
        tied = " with the tied embedding summed by shards" if config.tied_shards else ""
        named = " and ".join(f"`{name}`" if " " in name else name for name in self.able)
        runs = f"it runs with {named}" if named else "nothing runs it yet"
        return (
            f"Faster, but few or no frameworks run it: {config.schedule}{tied} takes at most {time_text(step(self.plan))}, "
            f"{self.saved:.0%} less time; {runs}. `--for {self._target}` searches such plans."
        )


def beyond(request: Request, found: Plan, seconds: Seconds, progress: Callable[[str], None]) -> Beyond | None:
    """What a plan that need not run on a framework saves of the step of `found`, by a search of at most `seconds` (and
    `LONGEST_S`) without a proof; None where `found` is not for `ANY` framework or nothing faster is found."""
    if request.target is None or request.target.name != ANY or seconds <= 0:
        return None
    free = replace(request, target=None, time_limit=min(seconds, LONGEST_S))
    context = PlanningContext(
        free, lambda text: progress(f"plans that few or no frameworks run: {text}"), start=found, punctual=True
    )
    context.proves = False
    try:
        other = api.plan(free, context=context)
    except HolmesError:
        return None
    saved = 1 - step(other) / step(found)
    return Beyond(other, saved, _able(other)) if saved >= LEAST_GAIN else None


def _able(plan: Plan) -> tuple[str, ...]:
    """What runs a plan: the frameworks that can, then the torch backend."""
    able = exporters.able(plan)
    try:
        supported.check(plan)
    except NotSupported:
        return able
    return (*able, BACKEND)
