"""ZB-H1: 1F1B with the backward in two, so that weight gradients fill its bubbles at the same number of microbatches held.

Qi et al., Zero Bubble Pipeline Parallelism, arXiv 2401.10241, section 2.1 and figure 3 (top). B is the gradient of a stage's
input, for which the stage before waits; W that of its weights, for which nobody waits. Place r runs W r microbatches behind B:
every place holds at most `ranks` microbatches in all, as many as the first place of 1F1B, and the bubble is (p - 1)(F + B - W)
(table 2). After a step all places wait for the slowest (see `sim.plan.schedules.zb_h2`).

Messages overlap: the authors' runtime posts them in batches of isend and irecv, waits for a receive where its tensor is used
and for the sends at the end of the step (sail-sg/zero-bubble-pipeline-parallelism, megatron/core/pipeline_parallel/
zb_schedules.py). Its ZB-1p is searched by measured F, B, W under the memory of 1F1B; its bubble is that of ZB-H1 (table 5).
"""

from __future__ import annotations

from sim.plan.program import Action, Program

NAME = "zb-h1"
CHUNKED = False
OVERLAPS_SENDS = True
SPLITS_BACKWARD = True
RECEIVES_FIRST = False


def actions(rank: int, ranks: int, microbatches: int, chunks: int) -> Program:
    """ranks - rank - 1 warm-up forwards, W `rank` microbatches behind B; any number of microbatches."""
    return one_f_one_b_one_w(rank, microbatches, ranks - rank - 1, rank)


def one_f_one_b_one_w(rank: int, microbatches: int, warmup: int, lag: int) -> Program:
    """`warmup` forwards, then F and B in turn with W `lag` microbatches behind B, then the weight gradients that are left."""
    program = [Action("F", rank, m) for m in range(min(warmup, microbatches))]
    for m in range(microbatches):
        if m + warmup < microbatches:
            program.append(Action("F", rank, m + warmup))
        program.append(Action("B", rank, m))
        if m >= lag:
            program.append(Action("W", rank, m - lag))
    return (*program, *(Action("W", rank, m) for m in range(max(microbatches - lag, 0), microbatches)))
