"""Certificate of optimality: how far a plan can be from the best plan of the searched space."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from sim.units import Seconds, time_text

UNLIKE = "no plan in which clusters have degrees of their own"
"""How the sentence about plans with unlike degrees begins (`SpaceBound.none`)."""
PIPELINES = "no plan of unlike pipelines"
"""How that about plans of unlike pipelines begins."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A dimension of the searched space: its values, or a text that states the rule they follow."""

    name: str
    values: tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Certificate:
    """Proven gap between a plan and the best plan of the searched space.

    `objective_s` is the step time of the plan, `lower_bound_s` a lower bound on that of every searched plan, at most the plan's
    own; `gap` is 1 - lower_bound_s / objective_s. `whole_lower_bound_s` bounds the plans with each stage on one cluster,
    `mixed_lower_bound_s` those with stages across clusters (None where there are none). `beside_space`: the plan is not in the
    searched space, because its stages have degrees of their own or its cp is not searched, and these two may be above its step.
    With another objective `gap` is 1 - lower_bound_per_token / the plan's own value per token (USD or joules).
    `least_bound_layout`: the layout that has the least bound, in words, if a search of it alone could make the gap smaller.
    `unlike_degrees`: a lower bound on the plans whose stages have degrees of their own on each cluster, if one is known; if the
    plan is one of them, `lower_bound_s` is at most this bound. `time_limit_reached`: the time limit ended the search, so that
    another machine may find another plan.
    `space` lists the searched axes, `outside` the features of plans that were not searched.
    """

    status: str
    objective_s: float
    lower_bound_s: float
    gap: float
    solver: str
    time_limit_reached: bool
    objective: str = "step-time"
    lower_bound_per_token: float | None = None
    mixed_lower_bound_s: float | None = None
    whole_lower_bound_s: float | None = None
    least_bound_layout: str | None = None
    beside_space: bool = False
    unlike_degrees: SpaceBound | None = None
    space: tuple[Axis, ...] = ()
    outside: tuple[str, ...] = ()

    @property
    def space_lower_bound_s(self) -> Seconds:
        """A lower bound on every plan of the searched space, also where it is above the step of a plan beside the space."""
        known = [bound for bound in (self.whole_lower_bound_s, self.mixed_lower_bound_s) if bound is not None]
        return min(known, default=self.lower_bound_s)

    @property
    def all_lower_bound_s(self) -> Seconds:
        """A lower bound on the plans of the searched space and on those with unlike degrees, if one of these is known."""
        return min(self.lower_bound_s, self.unlike_degrees.lower_bound_s if self.unlike_degrees else math.inf)

    @property
    def target(self) -> str:
        """The launch target that all searched plans run on; empty if there is none."""
        return next((str(axis.values[0]) for axis in self.space if axis.name == "target"), "")


@dataclass(frozen=True, slots=True)
class SpaceBound:
    """A lower bound on the step of every plan of a space that is described in words, and the gap to a plan.

    `objective_s` is the step of the plan; `lower_bound_s` is infinite where no plan of the space has room in memory. `none`
    begins the sentence that no plan takes less. `counted`: all that the bound counts of a step, in words, if one thing does."""

    objective_s: float
    lower_bound_s: float
    space: str
    none: str = PIPELINES
    counted: str = ""

    @property
    def gap(self) -> float:
        """The part of the step that could be saved at most: 1 - lower_bound_s / objective_s, or 0 if less."""
        return max(1 - self.lower_bound_s / self.objective_s, 0.0)

    def facts(self) -> dict[str, Any]:
        """The bound as plain data."""
        return {
            "objective_s": self.objective_s, "lower_bound_s": self.lower_bound_s, "gap": self.gap, "space": self.space,
            "counted": self.counted or None,
        }  # fmt: skip

    def __str__(self) -> str:
        if math.isinf(self.lower_bound_s):
            return "memory has no room for a plan of unlike pipelines"
        seconds = time_text(float(f"{self.lower_bound_s:.4g}"))
        saved = f"at most {self.gap:.1%} of {time_text(self.objective_s)} could be saved"
        counted = f", by {self.counted} alone" if self.counted else ""
        return f"{self.none} takes less than {seconds}{counted}: {saved}"
