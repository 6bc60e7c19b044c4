"""Allowed values of a dimension of plans, such as tp."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Allowed:
    """Allowed values of a dimension: those listed, or all from `least` to `most`."""

    values: tuple[int | str, ...] = ()
    least: int | None = None
    most: int | None = None

    def holds(self, value: int | str | None) -> bool:
        """Whether a value is allowed; None, where a plan has no such dimension, always is."""
        if value is None:
            return True
        if self.values:
            return value in self.values
        number = int(value)
        return (self.least is None or number >= self.least) and (self.most is None or number <= self.most)

    def __str__(self) -> str:
        if self.values:
            return " or ".join(map(str, self.values))
        if self.least is not None and self.most is not None:
            return f"{self.least} to {self.most}" if self.least < self.most else str(self.least)
        return f"at least {self.least}" if self.least is not None else f"at most {self.most}"
