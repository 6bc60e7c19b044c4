"""streaming-diloco: DiLoCo by fragments of the layers, one after the other during the outer period, each exchanged beside
further inner steps (Douillard et al., arXiv 2501.18512, sections 2.1 and 2.2).

Fragments are taken as equally large; the paper's are groups of whole layers."""

from __future__ import annotations

from sim.sync import Exchange, Sync
from sim.sync.diloco import PASSES as OUTER_PASSES

NAME = "streaming-diloco"
PRICE = "bounded"
SENDS = "outer gradients"
OUTER = "nesterov"
TAKES = ("inner_steps", "overlap_steps", "fragments")
STATE_BYTES = 8.0  # as DiLoCo; the fragments under way are small beside it
PASSES = OUTER_PASSES + 3.0  # the result is mixed with weights that have moved on: read both, write one


def exchanges(sync: Sync) -> tuple[Exchange, ...]:
    """A fragment after every inner_steps / fragments steps, rounded, the last at the end of the outer period."""
    parts = sync.fragments
    starts = [round((part + 1) * sync.inner_steps / parts) for part in range(parts)]
    return tuple(Exchange(1 / parts, start, sync.overlap_steps) for start in starts)
