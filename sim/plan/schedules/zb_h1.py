"""ZB-H1: 1F1B with a split backward, whose weight gradients fill bubbles without holding more microbatches than 1F1B.

Qi et al., Zero Bubble Pipeline Parallelism, arXiv 2401.10241, section 2.1 and figure 3 (top). B computes the gradient of a
stage's input, for which the previous stage waits; W that of its weights, for which no stage waits. Rank r of p runs W r
microbatches after B: every rank holds at most p microbatches in total, as many as the first rank of 1F1B, and the bubble is
(p - 1)(F + B - W) (table 2). After a step all ranks wait for the slowest (see `sim.plan.schedules.zb_h2`).

Messages overlap with compute: the authors' runtime posts them in batches of isend and irecv, waits for a receive when its
tensor is used and for the sends at the end of the step (sail-sg/zero-bubble-pipeline-parallelism,
megatron/core/pipeline_parallel/ zb_schedules.py). Its ZB-1p is found by a search with measured F, B and W under the memory
limit of 1F1B; its bubble is that of ZB-H1 (table 5).
"""

from __future__ import annotations

from sim.plan.program import Program, compute

NAME = "zb-h1"
CHUNKED = False
OVERLAPS_SENDS = True
SPLITS_BACKWARD = True
RECEIVES_FIRST = False
SEARCHED = True
FORWARDS_FIRST = False
WHOLE_ROUNDS = False
WARM_UP = 2  # 1 would hold, too


def actions(rank: int, ranks: int, microbatches: int, chunks: int) -> Program:
    """ranks - rank - 1 warm-up forwards, W `rank` microbatches after B; any number of microbatches."""
    return one_f_one_b_one_w(rank, microbatches, ranks - rank - 1, rank)


def one_f_one_b_one_w(rank: int, microbatches: int, warmup: int, lag: int) -> Program:
    """`warmup` forwards, then F and B in turn with W `lag` microbatches after B, then the remaining weight gradients."""
    program = [compute("F", rank, m) for m in range(min(warmup, microbatches))]
    for m in range(microbatches):
        if m + warmup < microbatches:
            program.append(compute("F", rank, m + warmup))
        program.append(compute("B", rank, m))
        if m >= lag:
            program.append(compute("W", rank, m - lag))
    return (*program, *(compute("W", rank, m) for m in range(max(microbatches - lag, 0), microbatches)))
