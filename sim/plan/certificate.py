"""Certificate of optimality: how far a plan can be from the best plan of the searched space."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Axis:
    """A dimension of the searched space: its values, or a text that states the rule they follow."""

    name: str
    values: tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Certificate:
    """Proven gap between a plan and the best plan of the searched space.

    `objective_s` is the step time of the plan, `lower_bound_s` a lower bound on that of every plan; `gap` is
    1 - lower_bound_s / objective_s. If no stage of the plan spans clusters, both hold for plans of that kind, and
    `mixed_lower_bound_s` bounds the plans with stages across clusters; if a stage of the plan does, they hold for both kinds,
    and `whole_lower_bound_s` bounds the plans without such stages. A plan whose stages have degrees of their own is in neither
    kind: then `whole_lower_bound_s` is the bound of the first kind, and may be above the plan's own step.
    With another objective `gap` is 1 - lower_bound_per_token / the plan's own value per token (USD or joules).
    `least_bound_layout`: the layout without stages across clusters that has the least bound, in words, if a search of it alone
    could make the gap smaller.
    `time_limit_reached`: the time limit ended the search, so that another machine may find another plan.
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
    space: tuple[Axis, ...] = ()
    outside: tuple[str, ...] = ()

    @property
    def target(self) -> str:
        """The launch target that all searched plans run on; empty if there is none."""
        return next((str(axis.values[0]) for axis in self.space if axis.name == "target"), "")
