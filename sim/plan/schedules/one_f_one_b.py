"""1F1B: warm-up, then one forward and one backward in turn, then cool-down (PipeDream-Flush, arXiv 2006.09503)."""

from __future__ import annotations

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
    warmup = min(ranks - rank - 1, microbatches)
    steady = microbatches - warmup
    program = [compute("F", rank, m) for m in range(warmup)]
    for m in range(steady):
        program += [compute("F", rank, warmup + m), compute("B", rank, m)]
    return (*program, *(compute("B", rank, m) for m in range(steady, microbatches)))
