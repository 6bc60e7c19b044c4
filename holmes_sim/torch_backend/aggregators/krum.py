"""krum: the values of the island that is nearest to its n - f - 2 nearest others (Blanchard et al., NIPS 2017, section 4)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sim.aggregation.krum import NAME, tolerated

__all__ = ["NAME", "aggregate", "scores"]


def aggregate(gathered: list[Tensor], total: Callable[[Tensor], Tensor]) -> list[Tensor]:
    """The values of the chosen island. Distances are those of the whole model, so that all ranks choose the same island."""
    chosen = int(scores(gathered, total).argmin())
    return [values[chosen] for values in gathered]


def scores(gathered: list[Tensor], total: Callable[[Tensor], Tensor]) -> Tensor:
    """The sum of squared distances of each island to its n - f - 2 nearest others."""
    islands = gathered[0].shape[0] if gathered else 0
    distances = torch.zeros(islands, islands, dtype=torch.float64)
    for values in gathered:
        for one in range(islands):
            distances[one] += (values - values[one]).double().square().sum(1).cpu()
    distances = total(distances)
    nearest = max(islands - tolerated(islands) - 2, 1)
    return distances.sort(1).values[:, 1 : 1 + nearest].sum(1)  # the first is the distance to itself
