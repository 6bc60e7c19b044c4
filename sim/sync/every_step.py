"""every-step: islands add up the gradients of every step before the optimizer, as one data-parallel group of unlike parts.

Without compression the result is that of synchronous training. With it, only what crosses between islands is compressed:
hierarchical compression, full inside an island."""

from __future__ import annotations

from sim.sync import Exchange, Sync

NAME = "every-step"
PRICE = "exact"
SENDS = "gradients"
OUTER = "step"
TAKES = ()
STATE_BYTES = 0.0
PASSES = 0.0


def exchanges(sync: Sync) -> tuple[Exchange, ...]:
    """All gradients after each step; islands wait for their sum."""
    return (Exchange(1.0, 1, 0),)
