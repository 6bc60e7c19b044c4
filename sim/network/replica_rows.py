"""Replicas of a stage, row by row: where neighbours stand alike on node after node, a few of them stand for all.

A ring that goes through many nodes in the same way loads each of them as it loads the next. So of a run of alike blocks (nodes,
or whole leaves where a cluster has leaf switches, whose nodes share links) three are enough: two at its begin, one at its end.
The first and the last have neighbours of other kinds, the second has what all others in between have."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from sim.hardware.cluster import Cluster, Device, Fleet

Row: TypeAlias = tuple[Device, ...]
Again: TypeAlias = tuple[tuple[int, int, int], ...]
"""(first, past, times): what stands from `first` to `past` is followed so many times by others like it, which are left out."""
KEPT = 3
"""Blocks of a run that are kept."""


def block_nodes(cluster: Cluster) -> int:
    """Nodes that share links: those of a leaf, or each for itself."""
    return cluster.fabric.nodes_per_leaf if cluster.fabric else 1


@dataclass(frozen=True)
class Rows:
    """Rows of devices, one for each replica, of which `kept` are listed and others stand `again` as some of these do.

    `all` makes every one of them."""

    kept: tuple[Row, ...]
    again: Again
    all: Callable[[], tuple[Row, ...]]

    @classmethod
    def of(cls, fleet: Fleet, rows: tuple[Row, ...]) -> Rows:
        """Rows that are listed, every one of them."""
        blocks = list(_blocks(fleet, rows))
        if len({key for key, _, _ in blocks}) < len(blocks) or any(not key for key, _, _ in blocks):
            return cls(rows, (), lambda: rows)  # a block that is left and entered again has other neighbours
        kept: list[Row] = []
        again: list[tuple[int, int, int]] = []
        first = 0
        for _, run in itertools.groupby(blocks, key=lambda block: block[2]):
            alike = list(run)
            size, many = alike[0][1], len(alike)
            if many > KEPT:
                again.append((len(kept) + size, len(kept) + 2 * size, many - KEPT))
                kept += rows[first : first + 2 * size] + rows[first + (many - 1) * size : first + many * size]
            else:
                kept += rows[first : first + many * size]
            first += many * size
        return cls(tuple(kept), tuple(again), lambda: rows)

    def __len__(self) -> int:
        return len(self.kept) + sum((past - first) * times for first, past, times in self.again)

    @functools.cached_property
    def like(self) -> tuple[int, ...]:
        """For each of all rows the one of `kept` that it is, or that it is like."""
        found: list[int] = []
        at = 0
        for first, past, times in self.again:
            found += [*range(at, past), *(index for _ in range(times) for index in range(first, past))]
            at = past
        return (*found, *range(at, len(self.kept)))


def _blocks(fleet: Fleet, rows: tuple[Row, ...]) -> Iterator[tuple[tuple[object, ...], int, object]]:
    """Neighbouring rows that share a block: its key, how many they are, how they stand on it. No key for a row on several."""
    nodes = {cluster.name: block_nodes(cluster) for cluster in fleet.clusters}

    def key(row: Row) -> tuple[object, ...]:
        keys = {(device.cluster, device.node // nodes[device.cluster]) for device in row}
        return keys.pop() if len(keys) == 1 else ()

    for one, together in itertools.groupby(rows, key=key):
        mine = list(together)
        hosts: dict[int, int] = {}
        look = tuple((hosts.setdefault(device.node, len(hosts)), device.index) for row in mine for device in row)
        yield one, len(mine), (mine[0][0].cluster, len(mine), look)


def joined(parts: Iterable[Rows]) -> Rows:
    """Rows of parts that stand on unlike clusters, one part after the other."""
    listed = list(parts)
    firsts = itertools.accumulate((len(part.kept) for part in listed), initial=0)
    again = tuple(
        (at + first, at + past, times) for at, part in zip(firsts, listed, strict=False) for first, past, times in part.again
    )
    kept = tuple(row for part in listed for row in part.kept)
    return Rows(kept, again, lambda: tuple(row for part in listed for row in part.all()))
