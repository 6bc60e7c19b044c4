"""Aggregation of the values of islands with torch: one module for each module of `sim.aggregation` that needs all values.

A module must define

NAME                        its name in `sim.aggregation`
aggregate(gathered, total)  one vector for each link of this rank (`islands.links`), from the values of all islands

The mean has no module here: it is a sum of weighted values (`islands.reducers`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from torch import Tensor

from sim.errors import OptionError
from sim.registry import Registry


class Aggregator(Protocol):
    """Interface of every module of this folder."""

    NAME: str

    def aggregate(self, gathered: list[Tensor], total: Callable[[Tensor], Tensor]) -> list[Tensor]:
        """One vector for each tensor (island, value) of `gathered`. `total` sums a tensor over the ranks of this island."""
        ...


REGISTRY: Registry[Aggregator] = Registry(__name__, "aggregation", OptionError, by_constant=True)


def get(name: str) -> Aggregator:
    """The aggregator of a name; raises OptionError for an unknown one."""
    return REGISTRY.get(name)
