"""A measured step held against its plan: what the plan promised, what the simulator says now, what was measured.

Promised and simulated seconds are multiplied by the timeline's scale, in which a second of the plan took so many. An error is
simulated over measured, minus 1, as everywhere: negative where the simulator is optimistic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sim.engine.timeline import Timeline, stretched
from sim.errors import TimelineError
from sim.formats import planfile
from sim.plan.plan import Plan
from sim.results import breakdown
from sim.results.breakdown import PipelineRankSeconds, Share
from sim.units import Seconds


@dataclass(frozen=True, slots=True)
class Line:
    """Seconds of a rank under one name, means over ranks; None where not told. `least` and `most` are measured, over ranks."""

    name: str
    promised: Seconds | None
    simulated: Seconds | None
    measured: Seconds | None
    least: Seconds | None = None
    most: Seconds | None = None

    @property
    def error(self) -> float | None:
        """Simulated over measured, minus 1; None where nothing was measured."""
        return self.simulated / self.measured - 1 if self.simulated is not None and self.measured else None

    def facts(self) -> dict[str, Any]:
        """Plain data."""
        numbers = {"promised_s": self.promised, "simulated_s": self.simulated, "measured_s": self.measured, "error": self.error}
        return numbers if self.least is None else numbers | {"least_s": self.least, "most_s": self.most}


@dataclass(frozen=True, slots=True)
class PlaceLines:
    """One pipeline place: its ranks' seconds by kind, and the seconds that its communication takes by group."""

    place: int
    ranks: int
    seconds: tuple[Line, ...]
    groups: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Held:
    """A timeline beside the simulated one, which is stretched by its scale."""

    name: str
    plan: Plan
    simulated: Timeline
    measured: Timeline
    step: Line
    seconds: tuple[Line, ...]
    places: tuple[PlaceLines, ...]

    @property
    def spread(self) -> float | None:
        """How far the timed steps lie apart, as a part of the median one; None where they were not timed."""
        steps = self.measured.steps_s
        return (max(steps) - min(steps)) / self.measured.step_s if steps else None

    def facts(self) -> dict[str, Any]:
        """Plain data, as `holmes-sim compare --json` prints them."""
        timeline = self.measured
        return {
            "name": self.name, "origin": timeline.origin, "compute": timeline.compute, "scale": timeline.scale,
            "step": self.step.facts() | {"steps_s": list(timeline.steps_s), "spread": self.spread},
            "seconds": {line.name: line.facts() for line in self.seconds},
            "stages": [
                {
                    "stage": place.place,
                    "ranks": place.ranks,
                    "seconds": {line.name: line.facts() for line in place.seconds},
                    "groups": {line.name: line.facts() for line in place.groups},
                }
                for place in self.places
            ],
        }  # fmt: skip


def hold(plan: Plan, simulated: Timeline, measured: Timeline, name: str, digests: tuple[str, ...] = ()) -> Held:
    """A timeline beside the simulated one of a plan; `name` stands in error messages.

    Raises TimelineError where it is another plan's; `digests` are others that are right too (of the plan without a profile).
    """
    own = planfile.digest(plan)
    if measured.plan_digest not in (own, *digests):
        right = (*digests, own)[0]
        raise TimelineError(f"{name}: plan_digest: {measured.plan_digest!r} is another plan's; one of this plan says {right!r}")
    ranks = sum(map(len, measured.alike))
    if ranks != plan.config.world_size:
        raise TimelineError(f"{name}: alike: {ranks} ranks; the plan has {plan.config.world_size}")
    scale, promise = measured.scale, plan.prediction
    model = stretched(simulated, scale / simulated.scale)
    here, there = breakdown.breakdown(model), breakdown.breakdown(measured)
    if [place.pp_rank for place in here] != [place.pp_rank for place in there]:
        raise TimelineError(f"{name}: its stages are {_places(there)}; the plan has {_places(here)}")
    promised: dict[str, Seconds] = {}
    if promise is not None:
        promised["exposed"] = scale * promise.exposed_communication_s
        promised["bubble"] = scale * promise.bubble_fraction * promise.step_s
    return Held(
        name=name,
        plan=plan,
        simulated=model,
        measured=measured,
        step=Line("step", scale * promise.step_s if promise else None, model.step_s, measured.step_s),
        seconds=_lines(breakdown.total(here).seconds, breakdown.total(there).seconds, promised),
        places=tuple(
            PlaceLines(b.pp_rank, b.ranks, _lines(a.seconds, b.seconds, {}), _lines(a.groups, b.groups, {}))
            for a, b in zip(here, there, strict=True)
        ),
    )


def _places(found: tuple[PipelineRankSeconds, ...]) -> str:
    return ", ".join(str(place.pp_rank) for place in found)


def _lines(
    simulated: tuple[tuple[str, Share], ...], measured: tuple[tuple[str, Share], ...], promised: dict[str, Seconds]
) -> tuple[Line, ...]:
    """Both by name, in the order of the first. A simulated step has nothing "other" than what it is made of."""
    model, real, found = dict(simulated), dict(measured), []
    for name in [*model, *(name for name in real if name not in model)]:
        said, seen = model.get(name), real.get(name)
        over_ranks = (seen.least, seen.most) if seen else (None, None)
        modelled = said.mean if said and name != "other" else None
        found.append(Line(name, promised.get(name), modelled, seen.mean if seen else None, *over_ranks))
    return tuple(found)
