"""Which tokens of a sequence each rank of a stage sends and receives.

A sequence is cut into 2 cp chunks, and cp rank r has chunks r and 2 cp - 1 - r (`holmes_sim.torch_backend.context_parallel`).
The tp ranks of a cp rank divide its tokens into tp slices, in the order of their positions: with sequence parallelism because
each computes on its slice, else because receivers gather slices. So with an even tp the first half of the slices is of the
first chunk and the second half of the second one; a single rank has both. Stages of other degrees cut the same sequence into
other parts. They match if each part of one is within a part of the other, or made up of some."""

from __future__ import annotations

import functools
from typing import TypeAlias

Degrees: TypeAlias = tuple[int, int]
"""(cp, tp) of a stage."""
Index: TypeAlias = tuple[int, int]
"""(cp, tp) indices of a rank of a replica."""


def parts(stage: Degrees) -> int:
    """Number of equal parts of a sequence, each of which is within one slice of one chunk; 0 for an odd tp above 1, some slice
    of which is of both chunks."""
    cp, tp = stage
    return 0 if tp > 1 and tp % 2 else 2 * cp * max(tp // 2, 1)


def match(a: Degrees, b: Degrees) -> bool:
    """Whether the parts of two stages match."""
    less, more = sorted((parts(a), parts(b)))
    return less > 0 and more % less == 0


@functools.lru_cache(maxsize=1024)
def holders(stage: Degrees, number: int) -> tuple[Index, ...]:
    """The rank that has each of `number` equal parts of a sequence, a multiple of `parts` of the stage."""
    cp, tp = stage
    each, slices = number // (2 * cp), max(tp // 2, 1)
    found = list[Index]()
    for part in range(number):
        chunk, inside = divmod(part, each)
        second = chunk >= cp
        index = 0 if tp == 1 else inside * slices // each + slices * second
        found.append((2 * cp - 1 - chunk if second else chunk, index))
    return tuple(found)


@functools.lru_cache(maxsize=4096)
def exchanged(index: Index, own: Degrees, other: Degrees) -> dict[Index, tuple[int, ...]]:
    """Rank of another stage that has some of the tokens of a rank -> which of the equal parts of the rank's tokens these are.

    All peers have equally many. They are in the order of their indices."""
    number = max(parts(own), parts(other))
    both = zip(holders(own, number), holders(other, number), strict=True)
    mine = [there for here, there in both if here == index]
    return {peer: tuple(part for part, there in enumerate(mine) if there == peer) for peer in sorted(set(mine))}
