"""The fleet of a request with and without its fabrics, the link capacities of both, and the NIC types of pipelines."""

from __future__ import annotations

from dataclasses import replace

from planner.space.shapes import slot, slots
from planner.target import Target
from sim.errors import NoRoute
from sim.hardware.cluster import Cluster, Fleet
from sim.hardware.transport import common_transport
from sim.network.paths import Capacities


class FleetViews:
    """`fleet`, as in the topology, and `open`, the same fleet without leaf switches; the capacities of the links of both.

    `target`: the launch target, which may not join devices of several vendors. Bounds on messages use `open`, because a
    placement may choose nodes such that no message crosses the spine."""

    def __init__(self, fleet: Fleet, target: Target | None = None):
        self._target = target
        self.fleet, self.capacities = fleet, Capacities(fleet)
        self.open = replace(fleet, clusters=tuple(replace(cluster, fabric=None) for cluster in fleet.clusters))
        self.open_capacities = Capacities(self.open)
        self._nics: dict[tuple[str, ...], str] = {}

    def share(self, other: FleetViews) -> None:
        """Share the costs of collectives that are known with other views of the same fleet."""
        self.capacities.shared, self.open_capacities.shared = other.capacities.shared, other.open_capacities.shared

    def nic_of(self, clusters: tuple[Cluster, ...]) -> str:
        """The NIC type of a pipeline on these clusters. Raises NoRoute where no type, or not the target, joins them all."""
        names = tuple(cluster.name for cluster in clusters)
        if self._target is not None and not self._target.joins(self.fleet, names):
            raise NoRoute(f"{self._target.name} does not join the vendors of {', '.join(names)}")
        if names not in self._nics:
            ends = (slot(cluster, 1, index)[0] for cluster in clusters for index in (0, slots(cluster, 1) - 1))
            self._nics[names] = common_transport(self.fleet, tuple(dict.fromkeys(ends)))[0]
        return self._nics[names]
