"""Pairs of passes and whole backwards (`sim.plan.program.PAIR`, `WHOLE`): when their messages arrive and leave, and when their
exchanges of tokens run.

A pair is a forward F, and a backward B with its weight gradients W, at the same time. Here it is one after the other: both
messages arrive before F and leave after W; the exchanges of both begin before F, and W ends when they have ended. So a pair
takes its compute or its exchanges, whichever is longer (arXiv 2412.19437, section 3.2.1: both all-to-all and pipeline
communication are fully hidden; kernels of both microbatches run one after the other on the same device). A whole backward sends
its gradient after W. All functions take the compute actions of a rank and the index of one of them."""

from __future__ import annotations

from collections.abc import Sequence

from sim.plan.program import PAIR, WHOLE, Action

HIDDEN = "ep"
"""Kind of group whose collectives, the exchanges of tokens, run beside the compute of a pair."""


def is_paired(work: Sequence[Action], index: int) -> bool:
    """Whether an F or a B is one of a pair."""
    return work[index].operation == PAIR or (index > 0 and work[index - 1].operation == PAIR)


def received_before(work: Sequence[Action], index: int) -> Sequence[Action]:
    """The passes whose messages arrive before an action."""
    if work[index].operation == PAIR:
        return work[index : index + 2]
    return () if index and work[index - 1].operation == PAIR else work[index : index + 1]


def sent_after(work: Sequence[Action], index: int) -> Sequence[Action]:
    """The passes whose messages leave after an action."""
    if work[index].operation:
        return ()
    if index and work[index - 1].operation == WHOLE:
        return work[index - 2 : index] if index > 1 and work[index - 2].operation == PAIR else work[index - 1 : index]
    return work[index : index + 1]


def begun_before(work: Sequence[Action], index: int) -> Sequence[Action]:
    """The passes whose exchanges of tokens begin before an action: of a pair both."""
    return work[index : index + 2] if work[index].operation == PAIR else ()


def ended_after(work: Sequence[Action], index: int) -> Sequence[Action]:
    """The passes whose exchanges of tokens end before the rank goes on after an action."""
    return work[index - 2 : index] if index > 1 and work[index - 2].operation == PAIR else ()
