"""Which ranks of islands exchange which parameters.

Each rank of an island holds cells: contiguous parts of weights whose optimizer state is its own. Islands may cut the weights in
different places (another pp, dp or ZeRO stage). So the weights are cut where any island cuts them; each piece then has one
owner in every island, and the pieces with the same owners form a link, which is one process group. Islands with equal layouts
have one link for each rank (two where tensor-parallel ranks also hold copies of the same weights)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from sim.errors import NotSupported


class Cell(NamedTuple):
    """Values `start` to `stop` of a weight, flattened, that one rank owns. `key` names the weight, or the shard of a
    tensor-parallel or expert-parallel rank, equally in all islands; `shape` is that of the whole weight or shard.

    `kind` keeps cells apart that must not share a link: copies of a weight stay equal only if their links are equal."""

    key: str
    start: int
    stop: int
    shape: tuple[int, ...] = ()
    kind: str = ""


class Link(NamedTuple):
    """Pieces of weights with the same owners: the number of the owner in each island, and for this rank the range of each piece
    in the vector of its cells. `cells` are the pieces themselves."""

    owners: tuple[int, ...]
    kind: str
    ranges: tuple[tuple[int, int], ...]
    cells: tuple[Cell, ...]

    @property
    def size(self) -> int:
        """Number of values."""
        return sum(stop - start for start, stop in self.ranges)


class _Held(NamedTuple):
    """A cell of a rank, and where it begins in the vector of the rank's cells."""

    start: int
    stop: int
    rank: int
    offset: int


def links_of(islands: Sequence[Sequence[Iterable[Cell]]], island: int, rank: int) -> list[Link]:
    """The links of a rank of an island, from the cells of every rank of every island. All ranks see links in the same order.

    Raises NotSupported where an island lacks a part of the weights that another has."""
    held = [_by_key(ranks) for ranks in islands]
    first = held[0]
    for index, other in enumerate(held):
        if missing := sorted(first.keys() ^ other.keys()):
            raise NotSupported(f"islands[0] and islands[{index}] cut the weights differently: only one has {missing[0]}")
    found: dict[tuple[tuple[int, ...], str], tuple[list[tuple[int, int]], list[Cell]]] = {}
    shapes = {(cell.key, cell.kind): cell.shape for ranks in islands for cells in ranks for cell in cells}
    for key, kind in first:
        for start, stop, owners in _pieces([one[key, kind] for one in held], key):
            if owners[island].rank == rank:
                ranges, cells = found.setdefault((tuple(owner.rank for owner in owners), kind), ([], []))
                at = owners[island].offset + start - owners[island].start
                ranges.append((at, at + stop - start))
                cells.append(Cell(key, start, stop, shapes[key, kind], kind))
    return [Link(owners, kind, tuple(ranges), tuple(cells)) for (owners, kind), (ranges, cells) in sorted(found.items())]


def _by_key(ranks: Sequence[Iterable[Cell]]) -> dict[tuple[str, str], list[_Held]]:
    """The cells of an island's ranks by weight, in order."""
    found: dict[tuple[str, str], list[_Held]] = {}
    for rank, cells in enumerate(ranks):
        offset = 0
        for cell in cells:
            found.setdefault((cell.key, cell.kind), []).append(_Held(cell.start, cell.stop, rank, offset))
            offset += cell.stop - cell.start
    return {key: sorted(found[key]) for key in sorted(found)}


def _pieces(islands: list[list[_Held]], key: str) -> Iterable[tuple[int, int, list[_Held]]]:
    """(start, stop, owner in each island) of the pieces of a weight. Raises NotSupported for a gap or an overlap."""
    ends = sorted({end for held in islands for one in held for end in (one.start, one.stop)})
    for start, stop in pairwise(ends):
        owners = []
        for index, held in enumerate(islands):
            at = bisect_right(held, start, key=lambda one: one.start) - 1
            owner = held[at] if at >= 0 else None
            if owner is None or owner.stop < stop or (at and held[at - 1].stop > start):
                raise NotSupported(f"islands[{index}]: no rank, or several, own values {start} to {stop} of {key}")
            owners.append(owner)
        yield start, stop, owners


def fragments_of(link: Link, fragments: int) -> list[tuple[tuple[int, int], ...]]:
    """The ranges of a link in `fragments` parts with equally many values, in order."""
    bounds = [link.size * index // fragments for index in range(fragments + 1)]
    found = []
    for low, high in pairwise(bounds):
        part, passed = [], 0
        for start, stop in link.ranges:
            begin, end = max(start, start + low - passed), min(stop, start + high - passed)
            passed += stop - start
            if begin < end:
                part.append((begin, end))
        found.append(tuple(part))
    return found
