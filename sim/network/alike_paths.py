"""Links that the transfers of a round load, where many of them have equivalent paths (`sim.network.paths.path`).

An all_to_all over n ranks has n (n - 1) transfers. Transfers are alike where their ends are at equivalent positions on nodes of
the same clusters, and these are one node, two nodes below one leaf switch, or two below two. Of alike transfers one path is
found, and their shares are added up by node and leaf. The sums are the same under each protocol; paths are not."""

from __future__ import annotations

import functools
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from sim import collectives
from sim.collectives import Round, Transfer
from sim.hardware.cluster import Device, Fleet
from sim.network.paths import End, LinkName, Path, Traffic, first_path, leaf, near_nics, nic_of, of_number, second_node
from sim.units import Seconds

Hosts: TypeAlias = tuple[tuple[Device, ...], ...]
SIDES = ("out", "in", "up", "down")
"""The sides of links, in the order of the numbers of a transfer: nodes of the source and of the target, leaves of both."""


@dataclass(frozen=True, slots=True)
class Alike:
    """Alike transfers. source, target: the ends of the first of them; second: the node that stands for that of the target.

    total: the sum of their shares. shares: side of a link -> the sums by number of the node or leaf there. steps: times
    that the longest chain crosses a transfer -> how many it crosses so often."""

    source: End
    target: End
    second: int
    total: float
    shares: dict[str, dict[int, float]]
    steps: dict[float, int]

    def path(self, fleet: Fleet, traffic: Traffic) -> Path:
        """The path of each, but for the numbers of nodes and leaves."""
        return first_path(fleet, self.source, self.target, traffic, self.second)

    def waits(self, seconds: Seconds) -> Iterator[Seconds]:
        """What the longest chain waits for each of them, where one step takes so many seconds."""
        return itertools.chain.from_iterable(itertools.repeat(times * seconds, many) for times, many in self.steps.items())

    def load(self, path: Path, use: dict[LinkName, float]) -> None:
        """Add the weights of all transfers, of which this is the path, to those of the links that they cross."""
        for link, weight in path.use:
            if link[0] == "trunk":
                use[link] = use.get(link, 0.0) + weight * self.total
                continue
            for number, share in self.shares[str(link[-1])].items():
                own = of_number(link, number)
                use[own] = use.get(own, 0.0) + weight * share


@functools.lru_cache(maxsize=64)  # the protocols of a collective, and the groups beside it, follow one another
def alike_transfers(fleet: Fleet, hosts: Hosts, nic: str, name: str, operation: str) -> tuple[tuple[Round, list[Alike]], ...]:
    """The rounds of a collective over devices given host by host, each with its transfers, those that are alike together.

    Shares are in units of the largest of the round. Raises NoRoute where a node has no NIC of the type."""
    ends = [End(device, tuple(one.index for one in members)) for members in hosts for device in members]
    firsts = itertools.accumulate((len(members) for members in hosts), initial=0)
    numbers = tuple(tuple(range(first, first + len(own))) for first, own in zip(firsts, hosts, strict=False))
    rounds = collectives.rounds(name, operation, numbers)
    return tuple((current, _alike(fleet, ends, nic, current.transfers)) for current in rounds)


def _alike(fleet: Fleet, ends: list[End], nic: str, transfers: tuple[Transfer, ...]) -> list[Alike]:
    clusters = [fleet.cluster(end.device.cluster) for end in ends]
    places = [(end.device.node, leaf(cluster, end.device)) for end, cluster in zip(ends, clusters, strict=True)]
    inside, outside = _numbered([(end.device.cluster, end.device.index, end.near) for end in ends]), [-1] * len(ends)
    if len({(end.device.cluster, end.device.node) for end in ends}) > 1:
        outside = _numbered([_position(fleet, end, nic) for end in ends])
    most, found = max(t.share for t in transfers), dict[tuple[int, ...], list[Transfer]]()
    for t in transfers:
        a, b = t.source, t.target
        if clusters[a] is clusters[b]:
            is_inside = places[a][0] == places[b][0]
            second = 0 if is_inside else second_node(clusters[a], ends[a].device, ends[b].device)
        else:
            is_inside, second = False, 0
        kinds = inside if is_inside else outside
        found.setdefault((is_inside, kinds[a], kinds[b], second), []).append(t)
    return [_sums(ends, places, key[-1], own, most) for key, own in found.items()]


def _sums(ends: list[End], places: list[tuple[int, int]], second: int, some: list[Transfer], unit: float) -> Alike:
    """Alike transfers; places: node and leaf of each rank."""
    shares = {side: defaultdict[int, float](float) for side in SIDES}
    out, into, up, down = shares.values()
    total, steps = 0.0, Counter[float]()
    for t in some:
        share = t.share / unit
        (node, above), (other, below) = places[t.source], places[t.target]
        out[node] += share
        into[other] += share
        up[above] += share
        down[below] += share
        total += share
        steps[t.steps] += t.steps > 0
    return Alike(ends[some[0].source], ends[some[0].target], second, total, dict(shares), +steps)


def _numbered(items: list[tuple[object, ...]]) -> list[int]:
    """Equal items have equal numbers."""
    known: dict[tuple[object, ...], int] = {}
    return [known.setdefault(item, len(known)) for item in items]


def _position(fleet: Fleet, end: End, nic: str) -> tuple[object, ...]:
    """What of a device decides its paths to devices of other nodes: the devices near to it, its CPU, and its number of NICs."""
    node = fleet.cluster(end.device.cluster).node
    nics = near_nics(node.count, nic_of(fleet, end.device, nic).count, end.device.index)
    return end.device.cluster, end.near, node.socket(end.device.index), len(nics)
