"""Results of a profiling session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holmes_sim.profiling.links import Link, LinkMeasurement, Point

if TYPE_CHECKING:
    from holmes_sim.profiling.ceilings import Ceilings
    from holmes_sim.profiling.layers import LayerTimings
    from holmes_sim.profiling.machine import Machine


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """The profiled device under a name: its ceilings at one precision, and the layer timings of the profiled models."""

    name: str
    machine: Machine
    software: str
    date: str
    ceilings: Ceilings
    layers: tuple[LayerTimings, ...] = ()


@dataclass(frozen=True, slots=True)
class LinkProfile:
    """A fitted link under a name, with the measurements it was fitted to."""

    name: str
    link: Link
    measured: tuple[LinkMeasurement, ...]

    @property
    def points(self) -> tuple[Point, ...]:
        """All measurements."""
        return tuple(point for one in self.measured for point in one.points)

    @property
    def ranks(self) -> int:
        """The largest number of ranks that was measured."""
        return max(point.ranks for point in self.points)

    @property
    def across(self) -> bool:
        """Whether the link joins several hosts, as opposed to devices of one host."""
        return any(one.hosts > 1 for one in self.measured)


@dataclass(frozen=True, slots=True)
class ProfileResult:
    """A profiled device, a profiled link, or both."""

    device: DeviceProfile | None
    link_profile: LinkProfile | None
