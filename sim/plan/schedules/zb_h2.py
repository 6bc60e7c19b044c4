"""ZB-H2: forwards enough in the warm-up that no place ever idles between its first action and its last, where F = B = W.

Qi et al., Zero Bubble Pipeline Parallelism, arXiv 2401.10241, section 2.2 and figure 3 (bottom). Against ZB-H1
(`sim.plan.schedules.zb_h1`) warm-up and lag of W double: every place holds up to 2 p - 1 microbatches, and from so many on a
place idles (p - 1)(F + B - 2 W) between its first action and its last (table 2).

Places end as they began, one forward after the other (a parallelogram). In the paper a place begins its next step at once: the
optimizer does not wait for the gradient norm of all places, which is checked afterwards (post-validation, section 4). That is
not modelled: the engine plays one step from its first action to its last, so the (p - 1) forwards of the fill stay in it as in
every schedule, and a step of ZB-H2 is no shorter than one of ZB-H1 where F = B = W. The published ZB-2p has them not.
"""

from __future__ import annotations

from sim.plan.program import Program
from sim.plan.schedules.zb_h1 import one_f_one_b_one_w

NAME = "zb-h2"
CHUNKED = False
OVERLAPS_SENDS = True
SPLITS_BACKWARD = True
RECEIVES_FIRST = False


def actions(rank: int, ranks: int, microbatches: int, chunks: int) -> Program:
    """2 (ranks - rank - 1) warm-up forwards, W `2 rank` microbatches behind B; any number of microbatches."""
    return one_f_one_b_one_w(rank, microbatches, 2 * (ranks - rank - 1), 2 * rank)
