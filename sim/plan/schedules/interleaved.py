"""Interleaved 1F1B: each rank holds several stages (chunks), which divides the bubble by their number.

Narayanan et al., arXiv 2104.04473, section 2.2, in the order of Megatron-LM: microbatches pass through the chunks in groups of
`ranks`, and rank r warms up with 2 (ranks - r - 1) + (chunks - 1) ranks forwards, or
with all of them if there are only `ranks` microbatches.
"""

from __future__ import annotations

from sim.errors import PlanError
from sim.plan.program import Action, Program

NAME = "interleaved"
CHUNKED = True
OVERLAPS_SENDS = True
SPLITS_BACKWARD = False
RECEIVES_FIRST = False


def actions(rank: int, ranks: int, microbatches: int, chunks: int) -> Program:
    """Compute actions of a pipeline rank; raises PlanError unless the number of microbatches is a multiple of `ranks`."""
    if microbatches % ranks:
        raise PlanError(f"schedule interleaved needs a multiple of pp {ranks} microbatches, not {microbatches}")
    total = microbatches * chunks
    warmup = total if microbatches == ranks else min(2 * (ranks - rank - 1) + (chunks - 1) * ranks, total)
    forward = [_nth(k, ranks, chunks, False) for k in range(total)]
    backward = [_nth(k, ranks, chunks, True) for k in range(total)]
    program = [Action("F", chunk * ranks + rank, m) for chunk, m in forward[:warmup]]
    for done, (chunk, m) in enumerate(forward[warmup:]):
        program.append(Action("F", chunk * ranks + rank, m))
        program.append(Action("B", backward[done][0] * ranks + rank, backward[done][1]))
    return (*program, *(Action("B", chunk * ranks + rank, m) for chunk, m in backward[total - warmup :]))


def _nth(k: int, ranks: int, chunks: int, backward: bool) -> tuple[int, int]:
    """(chunk, microbatch) of the k-th forward (or backward) of every rank."""
    group, place = divmod(k, ranks * chunks)
    chunk, offset = divmod(place, ranks)
    return (chunks - 1 - chunk if backward else chunk), group * ranks + offset
