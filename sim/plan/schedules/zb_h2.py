"""ZB-H2: warm-up with enough forwards that, if F = B = W, no rank idles between its first and its last action.

Qi et al., Zero Bubble Pipeline Parallelism, arXiv 2401.10241, section 2.2 and figure 3 (bottom). Compared to ZB-H1
(`sim.plan.schedules.zb_h1`), warm-up and lag of W double: every rank holds up to 2 p - 1 microbatches, and with at least that
many microbatches a rank idles (p - 1)(F + B - 2 W) between its first and its last action (table 2).

Ranks end in the order in which they start, one forward apart (a parallelogram). In the paper a rank starts its next step at
once: the optimizer does not wait for the gradient norm of all ranks, which is checked afterwards (post-validation, section 4).
This is not modelled: the engine simulates one step from first to last action, so the (p - 1) forwards of the fill count as in
every schedule, and a step of ZB-H2 is no shorter than one of ZB-H1 if F = B = W. The published ZB-2p does not pay for the fill.
"""

from __future__ import annotations

from sim.plan.program import Program
from sim.plan.schedules.zb_h1 import one_f_one_b_one_w

NAME = "zb-h2"
CHUNKED = False
OVERLAPS_SENDS = True
SPLITS_BACKWARD = True
RECEIVES_FIRST = False
SEARCHED = True
FORWARDS_FIRST = False
WHOLE_ROUNDS = False
WARM_UP = 2


def actions(rank: int, ranks: int, microbatches: int, chunks: int) -> Program:
    """2 (ranks - rank - 1) warm-up forwards, W `2 rank` microbatches after B; any number of microbatches."""
    return one_f_one_b_one_w(rank, microbatches, 2 * (ranks - rank - 1), 2 * rank)
