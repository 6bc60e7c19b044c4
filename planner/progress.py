"""The state of a search while it runs: what is being done, the best step so far and what is proved about it."""

from __future__ import annotations

from dataclasses import dataclass

from sim.units import Seconds


@dataclass(frozen=True, slots=True)
class Progress:
    """What a search does, the simulated step of its best plan (None before the first one), and a lower bound on the step of all
    plans that it searches."""

    activity: str
    step_s: Seconds | None = None
    lower_bound_s: Seconds = 0.0

    @property
    def gap(self) -> float | None:
        """Largest fraction of the best step by which another plan can be faster; None before the first plan."""
        return 1 - min(self.lower_bound_s / self.step_s, 1.0) if self.step_s is not None else None

    def __str__(self) -> str:
        if self.step_s is None or self.gap is None:
            return f"{self.activity}, no plan yet"
        bound = min(self.lower_bound_s, self.step_s)
        return f"{self.activity}, best step {self.step_s:.4g} s, bound {bound:.4g} s, gap {self.gap:.1%}"
