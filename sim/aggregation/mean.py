"""mean: the mean of the islands, weighted by their shares of the batch; one wrong island spoils it."""

from __future__ import annotations

NAME = "mean"


def tolerated(islands: int) -> int:
    """None."""
    return 0


def passes(islands: int) -> float:
    """None besides those of the exchange, which adds up on its way."""
    return 0.0


def kept(islands: int) -> float:
    """None besides those of the exchange."""
    return 0.0


def efficiency(islands: int) -> float:
    """It is what others are compared with."""
    return 1.0
