"""TODO sim.plan.certificate."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Axis:
    """A dimension of the searched space: its values, or in words where they follow a rule."""

    name: str
    values: tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Certificate:
    """How far the promise can be from the best of the searched space.

    `objective_s` is the plan's step and `lower_bound_s` what no plan's is below; `gap` is 1 - lower_bound_s / objective_s.
    Where the plan is a pipeline of whole stages these are about such pipelines, and `mixed_lower_bound_s` is what no plan with
    stages across clusters is below; where it has such stages itself, they are about both.
    Where the objective is another, `gap` is 1 - lower_bound_per_token / the plan's own (USD or joules).
    `space` is what was searched, by axis; `outside` what was not though a plan could have it.
    """

    status: str
    objective_s: float
    lower_bound_s: float
    gap: float
    solver: str
    seconds: float
    objective: str = "step-time"
    lower_bound_per_token: float | None = None
    mixed_lower_bound_s: float | None = None
    space: tuple[Axis, ...] = ()
    outside: tuple[str, ...] = ()
