"""Plans of islands on ideal machines: clusters of one node each, joined by Ethernet."""

from __future__ import annotations

from itertools import pairwise

from sim.hardware.cluster import Fleet, Trunk
from sim.plan.islands import IslandsPlan
from sim.plan.plan import MadeBy
from sim.sync import Sync
from tests.builders import cluster, every_device, fleet, nic, plan

LAYERS = 4


def machines(islands: int = 2, devices: int = 2, bandwidth: float = 1e9, latency: float = 0.0) -> Fleet:
    """Clusters a, b, c, ... in a chain, or, with more than two, a ring of trunks of `bandwidth` bytes per second."""
    names = "abcdefgh"[:islands]
    ends = [*pairwise(names), (names[-1], names[0])] if islands > 2 else [(names[0], names[1])]
    trunks = tuple(Trunk(pair, "ethernet", bandwidth, latency) for pair in ends)
    nodes = (cluster(name, 1, devices, (nic("ethernet", 1e12),)) for name in names)
    return fleet(*nodes, trunks=trunks)


def islands_plan(where: Fleet, sync: Sync, degrees: tuple[dict[str, int], ...] = (), **facts: object) -> IslandsPlan:
    """An island on each cluster: two data-parallel replicas with ZeRO 1, unless `degrees` say otherwise."""
    islands = []
    for index, one in enumerate(where.clusters):
        own = degrees[index] if degrees else {"dp": one.node.count}
        devices = tuple(device for device in every_device(where) if device.cluster == one.name)
        stages = own.get("pp", 1)
        layers = (LAYERS // stages,) * stages
        islands.append(plan(where, placement=devices, layers=layers, **{"zero_stage": 1} | own | facts))
    return IslandsPlan(sync, tuple(islands), MadeBy("by hand", "1"))
