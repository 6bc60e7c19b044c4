"""krum: the values of the island that is nearest to its n - f - 2 nearest others (Blanchard et al., NIPS 2017).

It needs n >= 2 f + 3 islands to withstand f wrong ones."""

from __future__ import annotations

NAME = "krum"


def tolerated(islands: int) -> int:
    """f with n >= 2 f + 3."""
    return max(0, (islands - 3) // 2)


def passes(islands: int) -> float:
    """The distance of each pair of islands reads two values for each parameter; the chosen one is read and written."""
    return islands * (islands - 1) + 2


def kept(islands: int) -> float:
    """Those of all islands: which is chosen is known at the end."""
    return float(islands)


def efficiency(islands: int) -> float:
    """The result is that of one island. That the chosen one is nearer to the others than most are is not counted."""
    return 1 / islands
