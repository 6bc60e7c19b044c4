"""What a source tells of a fleet. Each fact says where it was read, as `file:line`.

A source tells what it knows and nothing more: what it leaves out stays empty (text), 0 (numbers) or None.
"""

from __future__ import annotations

from dataclasses import dataclass

from holmes_sim.profiling.links import Measured
from sim.units import BytesPerSecond

RUN, FABRIC, SCHEDULER = range(3)
"""What the hosts of a source are; those of the last kind that there is make the topology."""


@dataclass(frozen=True, slots=True)
class Host:
    """A host, its leaf switch (or block), and the switches above that one, up to the root."""

    name: str
    where: str
    leaf: str = ""
    above: tuple[str, ...] = ()

    @property
    def places(self) -> tuple[str, ...]:
        """Leaf, the switches above it, root: those that are told."""
        return tuple(name for name in (self.leaf, *self.above) if name)


@dataclass(frozen=True, slots=True)
class Devices:
    """Devices of one node: the catalogue's name, and what the source calls them, where it does. `used` where `count` is of
    those that a run used: the node may have more."""

    where: str
    type: str = ""
    label: str = ""
    count: int = 0
    used: bool = False


@dataclass(frozen=True, slots=True)
class Joints:
    """How the devices of a node are joined.

    `kind` is nvlink, xgmi or pcie; `links` the most links between two devices (to all others together, where they go through
    a switch); `whole` where every pair is joined so; `generation` that of PCIe, 0 where it is not told.
    """

    where: str
    kind: str
    links: int = 0
    whole: bool = False
    generation: int = 0


@dataclass(frozen=True, slots=True)
class Nics:
    """NICs of one type in a node; `type` is empty where only their number and names are told."""

    where: str
    type: str = ""
    bandwidth: BytesPerSecond = 0.0
    count: int = 0
    names: tuple[str, ...] = ()
    gid_index: int | None = None


@dataclass(frozen=True, slots=True)
class Parts:
    """What a node has. Said of `hosts`; of all nodes where they are empty."""

    hosts: tuple[str, ...] = ()
    devices: Devices | None = None
    joints: Joints | None = None
    nics: tuple[Nics, ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that one source tells.

    `census` says what its hosts are: all that jobs may run on, all that a fabric joins, or those that a run used. `downlinks`
    are bandwidths of leaves by name: (to hosts, to other switches). `notes` say what was left out or taken for granted.
    """

    source: str
    hosts: tuple[Host, ...] = ()
    census: int = RUN
    parts: tuple[Parts, ...] = ()
    measured: tuple[Measured, ...] = ()
    downlinks: tuple[tuple[str, BytesPerSecond, BytesPerSecond], ...] = ()
    notes: tuple[str, ...] = ()
