"""Replica rows: the devices of a stage, one row for each dp_cp index, with long runs of equivalent nodes cut to a few.

A ring that passes many equivalent nodes loads each of them equally. So of a run of equivalent blocks (nodes, or whole leaves in
a cluster with leaf switches, as nodes of a leaf share links) three are kept: the first two and the last one. The first and the
last have neighbours of other kinds; the second has the same load as all blocks between."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from sim.hardware.cluster import Cluster, Device, Fleet

Row: TypeAlias = tuple[Device, ...]
Unlisted: TypeAlias = tuple[tuple[int, int, int], ...]
"""(first, past, times): the items from `first` to `past` (exclusive) are followed by `times` equivalent copies, not listed."""
KEPT_BLOCKS = 3
"""Number of equivalent blocks of a run that are kept: the fewest that show both ends and the inside of the run."""


def block_nodes(cluster: Cluster) -> int:
    """Number of nodes that share links: those of a leaf switch, or 1 without leaf switches."""
    return cluster.fabric.nodes_per_leaf if cluster.fabric else 1


@dataclass(frozen=True)
class ReplicaRows:
    """Rows of devices, one for each dp_cp index: `kept` are listed, `unlisted` counts equivalents, `all` returns all rows."""

    kept: tuple[Row, ...]
    unlisted: Unlisted
    all: Callable[[], tuple[Row, ...]]

    @classmethod
    def of(cls, fleet: Fleet, rows: tuple[Row, ...]) -> ReplicaRows:
        """Replica rows of `rows`, which lists every one of them."""
        blocks = list(_blocks(fleet, rows))
        if len({key for key, _, _ in blocks}) < len(blocks) or any(not key for key, _, _ in blocks):
            return cls(rows, (), lambda: rows)  # a block that the ring visits twice has other neighbours
        kept: list[Row] = []
        unlisted: list[tuple[int, int, int]] = []
        first = 0
        for _, run in itertools.groupby(blocks, key=lambda block: block[2]):
            equivalent = list(run)
            size, many = equivalent[0][1], len(equivalent)
            if many > KEPT_BLOCKS:
                unlisted.append((len(kept) + size, len(kept) + 2 * size, many - KEPT_BLOCKS))
                kept += rows[first : first + 2 * size] + rows[first + (many - 1) * size : first + many * size]
            else:
                kept += rows[first : first + many * size]
            first += many * size
        return cls(tuple(kept), tuple(unlisted), lambda: rows)

    def pattern(self, fleet: Fleet) -> object:
        """What decides the costs of collectives over these rows: rows of equal patterns have equal costs.

        Blocks of a cluster are numbered in order of appearance, since all of them are equal, and have the same links to all
        others."""
        nodes = {cluster.name: block_nodes(cluster) for cluster in fleet.clusters}
        numbers: dict[tuple[str, int], int] = {}

        def place(device: Device) -> tuple[str, int, int, int]:
            block, node = divmod(device.node, nodes[device.cluster])
            return device.cluster, numbers.setdefault((device.cluster, block), len(numbers)), node, device.index

        return tuple(tuple(map(place, row)) for row in self.kept), self.unlisted

    def __len__(self) -> int:
        return len(self.kept) + sum((past - first) * times for first, past, times in self.unlisted)

    @functools.cached_property
    def like(self) -> tuple[int, ...]:
        """For each of all rows the index of the row of `kept` that it is or that it is equivalent to."""
        indices: list[int] = []
        at = 0
        for first, past, times in self.unlisted:
            indices += [*range(at, past), *(index for _ in range(times) for index in range(first, past))]
            at = past
        return (*indices, *range(at, len(self.kept)))


def _blocks(fleet: Fleet, rows: tuple[Row, ...]) -> Iterator[tuple[tuple[object, ...], int, object]]:
    """(key of the block, number of rows, pattern) of consecutive rows on one block; the key is () for rows on several blocks.

    Blocks of equal pattern have equal clusters, numbers of rows, and devices at equal positions in the block."""
    nodes = {cluster.name: block_nodes(cluster) for cluster in fleet.clusters}

    def key(row: Row) -> tuple[object, ...]:
        keys = {(device.cluster, device.node // nodes[device.cluster]) for device in row}
        return keys.pop() if len(keys) == 1 else ()

    for one, together in itertools.groupby(rows, key=key):
        on_block = list(together)
        hosts: dict[int, int] = {}
        pattern = tuple((hosts.setdefault(device.node, len(hosts)), device.index) for row in on_block for device in row)
        yield one, len(on_block), (on_block[0][0].cluster, len(on_block), pattern)


def joined(parts: Iterable[ReplicaRows]) -> ReplicaRows:
    """Replica rows of several parts on different clusters, one after the other."""
    listed = list(parts)
    firsts = itertools.accumulate((len(part.kept) for part in listed), initial=0)
    unlisted = tuple(
        (at + first, at + past, times) for at, part in zip(firsts, listed, strict=False) for first, past, times in part.unlisted
    )
    kept = tuple(row for part in listed for row in part.kept)
    return ReplicaRows(kept, unlisted, lambda: tuple(row for part in listed for row in part.all()))
