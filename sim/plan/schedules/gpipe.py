"""GPipe: all forwards, then all backwards (Huang et al., arXiv 1811.06965, section 2.3)."""

from __future__ import annotations

from sim.plan.program import Program, compute

NAME = "gpipe"
CHUNKED = False
OVERLAPS_SENDS = False
SPLITS_BACKWARD = False
RECEIVES_FIRST = False
SEARCHED = False
PRODUCTION = True
FORWARDS_FIRST = True
WHOLE_ROUNDS = False


def actions(rank: int, ranks: int, microbatches: int, chunks: int) -> Program:
    """F0 ... F(m-1) B0 ... B(m-1); every rank holds all microbatches at once."""
    forward = tuple(compute("F", rank, m) for m in range(microbatches))
    backward = tuple(compute("B", rank, m) for m in range(microbatches))
    return forward + backward


def actions_of_sizes(rank: int, sizes: tuple[int, ...], microbatches: int) -> Program:
    """The same passes: a rank may have any number of microbatches, because all its backwards follow all forwards."""
    return actions(rank, len(sizes), microbatches, 1)
