"""What a session of profiling found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holmes_sim.profiling.links import Link, Measured, Point

if TYPE_CHECKING:
    from holmes_sim.profiling.ceilings import Ceilings
    from holmes_sim.profiling.layers import Measured as LayerTimes
    from holmes_sim.profiling.machine import Machine


@dataclass(frozen=True, slots=True)
class Device:
    """The device at hand under a name, what it reaches at a precision, and the models that were profiled on it."""

    name: str
    machine: Machine
    software: str
    date: str
    ceilings: Ceilings
    layers: tuple[LayerTimes, ...] = ()


@dataclass(frozen=True, slots=True)
class Joined:
    """A link under a name, what it was fitted to, and how well."""

    name: str
    link: Link
    measured: tuple[Measured, ...]

    @property
    def points(self) -> tuple[Point, ...]:
        """All measurements."""
        return tuple(point for one in self.measured for point in one.points)

    @property
    def ranks(self) -> int:
        """The most ranks that were measured together."""
        return max(point.ranks for point in self.points)

    @property
    def across(self) -> bool:
        """Whether it joins hosts, not devices of one."""
        return any(one.hosts > 1 for one in self.measured)


@dataclass(frozen=True, slots=True)
class Found:
    """A device, a link, or both."""

    device: Device | None
    joined: Joined | None
