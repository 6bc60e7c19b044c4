"""Facts about a fleet, as one source gives them. Each fact has `where`, the `file:line` it was read from.

Facts that a source does not give are empty (text), 0 (numbers) or None.
"""

from __future__ import annotations

from dataclasses import dataclass

from holmes_sim.profiling.links import LinkMeasurement
from sim.units import Bytes, BytesPerSecond

RUN, FABRIC, SCHEDULER = range(3)
"""Coverage of a source's list of hosts: those of one run, those on a fabric, or all that jobs may run on. The topology has the
hosts of the sources with the largest coverage.
"""


@dataclass(frozen=True, slots=True)
class Host:
    """A host, its leaf switch (or block), and the switches above the leaf, in order up to the root."""

    name: str
    where: str
    leaf: str = ""
    above: tuple[str, ...] = ()

    @property
    def switches(self) -> tuple[str, ...]:
        """Known switches from the leaf to the root."""
        return tuple(name for name in (self.leaf, *self.above) if name)


@dataclass(frozen=True, slots=True)
class Devices:
    """Devices of one node: name in the catalogue (`type`), name in the source (`label`), and number.

    `used`: `count` is the number of devices that a run used; the node may have more.
    """

    where: str
    type: str = ""
    label: str = ""
    count: int = 0
    used: bool = False


@dataclass(frozen=True, slots=True)
class Interconnect:
    """How the devices of a node are joined.

    `kind` is nvlink, xgmi or pcie. `links` is the largest number of links between two devices, or, through a switch, from one
    device to all others. `all_pairs`: every pair has this many links. `generation` is that of PCIe, 0 if unknown.
    """

    where: str
    kind: str
    links: int = 0
    all_pairs: bool = False
    generation: int = 0


@dataclass(frozen=True, slots=True)
class Nics:
    """NICs of one type in a node; `type` is empty if the source gives only number and names."""

    where: str
    type: str = ""
    bandwidth: BytesPerSecond = 0.0
    count: int = 0
    names: tuple[str, ...] = ()
    gid_index: int | None = None


@dataclass(frozen=True, slots=True)
class HostMemory:
    """Memory of the CPUs of a node."""

    where: str
    nbytes: Bytes


@dataclass(frozen=True, slots=True)
class Parts:
    """Devices, interconnect, NICs and host memory of a node, valid for `hosts`; for all nodes if `hosts` is empty."""

    hosts: tuple[str, ...] = ()
    devices: Devices | None = None
    interconnect: Interconnect | None = None
    nics: tuple[Nics, ...] = ()
    host_memory: HostMemory | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """All facts that one source gives.

    `coverage` says which hosts the source lists (RUN, FABRIC or SCHEDULER). `downlinks` are (leaf, bandwidth to hosts,
    bandwidth to other switches). `notes` say what was left out or assumed.
    """

    source: str
    hosts: tuple[Host, ...] = ()
    coverage: int = RUN
    parts: tuple[Parts, ...] = ()
    measured: tuple[LinkMeasurement, ...] = ()
    downlinks: tuple[tuple[str, BytesPerSecond, BytesPerSecond], ...] = ()
    notes: tuple[str, ...] = ()
