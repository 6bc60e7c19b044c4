"""multi-krum: the mean of the islands with the best scores of Krum."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from holmes_sim.torch_backend.aggregators.krum import scores
from sim.aggregation.multi_krum import NAME, averaged

__all__ = ["NAME", "aggregate"]


def aggregate(gathered: list[Tensor], total: Callable[[Tensor], Tensor]) -> list[Tensor]:
    """The mean of the chosen islands, the same for all ranks."""
    found = scores(gathered, total)
    chosen = found.argsort()[: averaged(len(found))]
    return [values[chosen.to(values.device)].mean(0) for values in gathered]
