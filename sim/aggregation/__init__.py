"""Aggregation of the values of islands to one: the mean, or rules that withstand some wrong (Byzantine) islands.

A module must define

NAME                        its name in options and files
tolerated(islands)          the number of islands whose values may be wrong while the result stays near that of the others
passes(islands)             how often the rule reads or writes an fp32 value for each parameter, on each island
kept(islands)               fp32 values that an island keeps for each parameter until the result is known
efficiency(islands)         the noise of the mean over that of the rule, as variances, where all islands are right and differ by
                            independent normal noise; None if it is unknown. The price of robustness: the result is as noisy as
                            the mean of this share of the islands

All rules but the mean need the values of every island at one place, and count all islands alike, whatever their share of the
batch. The folder is the registry."""

from __future__ import annotations

from typing import Protocol

from sim.errors import OptionError
from sim.registry import Registry

MOST_ISLANDS = 1000
"""Number of islands up to which `needed` looks for one that may be wrong. More than any fleet has."""


class Aggregation(Protocol):
    """Interface of every module of this folder."""

    NAME: str

    def tolerated(self, islands: int) -> int:
        """Number of islands whose values may be wrong."""
        ...

    def passes(self, islands: int) -> float:
        """Number of fp32 values that are read or written for each parameter."""
        ...

    def kept(self, islands: int) -> float:
        """Number of fp32 values that are kept for each parameter."""
        ...

    def efficiency(self, islands: int) -> float | None:
        """Variance of the mean over that of the rule; None if it is unknown."""
        ...


REGISTRY: Registry[Aggregation] = Registry(__name__, "aggregation", OptionError, by_constant=True)


def names() -> tuple[str, ...]:
    """Names of all aggregations, sorted."""
    return REGISTRY.names


def get(name: str) -> Aggregation:
    """The aggregation of a name; raises OptionError for an unknown one."""
    return REGISTRY.get(name)


def needed(name: str) -> int | None:
    """The least number of islands of which one may be wrong; None for the mean."""
    tolerated = get(name).tolerated
    return next((islands for islands in range(1, MOST_ISLANDS) if tolerated(islands)), None)
