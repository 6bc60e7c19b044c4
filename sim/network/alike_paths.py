"""Links that the transfers of a round load, where many of them have equivalent paths (`sim.network.paths.path`).

An all_to_all over n ranks has n (n - 1) transfers. Transfers are alike where their ends are at the same positions on nodes of
the same clusters, and these are one node, two nodes below one leaf switch, or two below two. Of alike transfers one path is
found, and their shares are added up by node and leaf."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from sim.collectives import Transfer
from sim.hardware.cluster import Fleet
from sim.network.paths import End, LinkName, Path, Traffic, first_path, leaf, renumbered, second_node

Position: TypeAlias = tuple[str, int, tuple[int, ...], Traffic]
"""Cluster and index of a device, the devices near to it, and what transfers from it are part of."""


class Alike:
    """Alike transfers: their path, but for the numbers of nodes and leaves, and the sums of their shares and steps."""

    __slots__ = ("_by_side", "path", "steps", "total")

    def __init__(self, path: Path):
        self.path, self.steps, self.total = path, 0.0, 0.0
        sides = {link[-1] for link, _ in path.use if link[0] != "trunk"}
        self._by_side = [(i, side, defaultdict[int, float](float)) for i, side in enumerate(SIDES) if side in sides]

    def add(self, share: float, steps: float, numbers: tuple[int, int, int, int]) -> None:
        """Add a transfer; numbers: those of the source's node, the target's node, and their leaves."""
        for i, _, shares in self._by_side:
            shares[numbers[i]] += share
        self.total += share
        self.steps += steps

    def load(self, use: dict[LinkName, float]) -> None:
        """Add the weights of all transfers to those of the links that they cross."""
        by_side = {side: shares for _, side, shares in self._by_side}
        for link, weight in self.path.use:
            if link[0] == "trunk":
                use[link] = use.get(link, 0.0) + weight * self.total
                continue
            side = str(link[-1])
            for number, share in by_side[side].items():
                own = renumbered(link, {side: number})
                use[own] = use.get(own, 0.0) + weight * share


SIDES = ("out", "in", "up", "down")
"""The sides of links, in the order of the numbers of a transfer: nodes of the source and of the target, leaves of both."""


def alike(
    fleet: Fleet, ends: Sequence[End], traffic: Sequence[Traffic], transfers: Iterable[Transfer], unit: float
) -> list[Alike]:
    """The transfers of a round, those that are alike together; their shares are in units of `unit`.

    ends, traffic: of each rank, its device and what the transfers from it are part of. Raises NoRoute."""
    clusters = [fleet.cluster(end.device.cluster) for end in ends]
    places = [(end.device.node, leaf(cluster, end.device)) for end, cluster in zip(ends, clusters, strict=True)]
    known: dict[Position, int] = {}
    kinds = [
        known.setdefault((end.device.cluster, end.device.index, end.near, own), len(known))
        for end, own in zip(ends, traffic, strict=True)
    ]
    found: dict[tuple[int, int, int], Alike] = {}
    for t in transfers:
        a, b = t.source, t.target
        (node, up), (other, down) = places[a], places[b]
        near = clusters[a] is not clusters[b] or node == other
        second = 0 if near else second_node(clusters[a], ends[a].device, ends[b].device)
        key = kinds[a], kinds[b], second
        if key not in found:
            found[key] = Alike(first_path(fleet, ends[a], ends[b], traffic[a], second))
        found[key].add(t.share / unit, t.steps, (node, other, up, down))
    return list(found.values())
