"""Interleaved 1F1B: each rank holds several stages (chunks), which divides the bubble by their number.

Narayanan et al., arXiv 2104.04473, section 2.2, in the order of Megatron-LM: microbatches pass through the chunks in groups of
`ranks`, and rank r warms up with 2 (ranks - r - 1) + (chunks - 1) ranks forwards, or
with all of them if there are only `ranks` microbatches.
"""

from __future__ import annotations

from sim.errors import NotDefined
from sim.plan.program import Program, compute

NAME = "interleaved"
CHUNKED = True
OVERLAPS_SENDS = True
SPLITS_BACKWARD = False
RECEIVES_FIRST = False
SEARCHED = True
PRODUCTION = True
FORWARDS_FIRST = False
WHOLE_ROUNDS = True
WARM_UP = 2


def actions(rank: int, ranks: int, microbatches: int, chunks: int) -> Program:
    """Compute actions of a pipeline rank; raises NotDefined unless the number of microbatches is a multiple of `ranks`."""
    if microbatches % ranks:
        raise NotDefined(
            f"schedule interleaved needs a number of microbatches that is a multiple of pp {ranks}, not {microbatches}"
        )
    total = microbatches * chunks
    warmup = total if microbatches == ranks else min(2 * (ranks - rank - 1) + (chunks - 1) * ranks, total)
    forward = [_nth(k, ranks, chunks, False) for k in range(total)]
    backward = [_nth(k, ranks, chunks, True) for k in range(total)]
    program = [compute("F", chunk * ranks + rank, m) for chunk, m in forward[:warmup]]
    for done, (chunk, m) in enumerate(forward[warmup:]):
        program.append(compute("F", chunk * ranks + rank, m))
        program.append(compute("B", backward[done][0] * ranks + rank, backward[done][1]))
    return (*program, *(compute("B", chunk * ranks + rank, m) for chunk, m in backward[total - warmup :]))


def _nth(k: int, ranks: int, chunks: int, backward: bool) -> tuple[int, int]:
    """(chunk, microbatch) of the k-th forward (or backward) of every rank."""
    group, position = divmod(k, ranks * chunks)
    chunk, offset = divmod(position, ranks)
    return (chunks - 1 - chunk if backward else chunk), group * ranks + offset
