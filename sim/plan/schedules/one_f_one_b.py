"""1F1B: warm-up, then one forward and one backward in turn, then cool-down (PipeDream-Flush, arXiv 2006.09503)."""

from __future__ import annotations

import functools
import itertools

from sim.plan.program import Program, compute

NAME = "1f1b"
CHUNKED = False
OVERLAPS_SENDS = False
SPLITS_BACKWARD = False
RECEIVES_FIRST = False
SEARCHED = True
PRODUCTION = True
FORWARDS_FIRST = False
WHOLE_ROUNDS = False
WARM_UP = 1


def actions(rank: int, ranks: int, microbatches: int, chunks: int) -> Program:
    """ranks - rank - 1 warm-up forwards; rank 0 holds at most `ranks` microbatches, the last rank one."""
    return _after_warm_up(ranks - rank - 1, rank, microbatches)


def actions_of_sizes(rank: int, sizes: tuple[int, ...], microbatches: int) -> Program:
    """The passes of a rank of a pipeline whose ranks have microbatches of so many samples each (`warm_ups`)."""
    return _after_warm_up(warm_ups(sizes)[rank], rank, microbatches)


@functools.lru_cache(maxsize=4096)
def warm_ups(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Forwards of each rank before its first steady one, where ranks have microbatches of unlike sizes; as 1F1B has with equal.

    Before its first backward a rank runs forwards of as many samples as the next rank does, and of one more microbatch: the
    larger one of the two, which travels while the next rank computes. With (w + 1) x size samples on each, and sizes of which
    one divides the other, that is the least w with (w + 1) size >= (w' + 1) size' + max(size, size'). No pass waits for ever:
    before backward j of a rank, the next one has run w' + i + 1 forwards, where i is the microbatch with the last samples of j,
    and these have at most the samples of the w + j + 1 forwards that the rank has run."""
    found = [0]
    for size, behind in reversed(list(itertools.pairwise(sizes))):
        samples = (found[-1] + 1) * behind + max(size, behind)
        found.append(-(-samples // size) - 1)
    return tuple(reversed(found))


def _after_warm_up(forwards: int, rank: int, microbatches: int) -> Program:
    warmup = min(forwards, microbatches)
    steady = microbatches - warmup
    program = [compute("F", rank, m) for m in range(warmup)]
    for m in range(steady):
        program += [compute("F", rank, warmup + m), compute("B", rank, m)]
    return (*program, *(compute("B", rank, m) for m in range(steady, microbatches)))
