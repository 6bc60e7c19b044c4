"""Aggregation of the values of islands to one: the mean, or rules that withstand some wrong (Byzantine) islands.

A module must define

NAME                        its name in options and files
tolerated(islands)          the number of islands whose values may be wrong while the result stays near that of the others
passes(islands)             how often the rule reads or writes an fp32 value for each parameter, on each island

All rules but the mean need the values of every island at one place. The folder is the registry."""

from __future__ import annotations

from typing import Protocol

from sim.errors import OptionError
from sim.registry import Registry


class Aggregation(Protocol):
    """Interface of every module of this folder."""

    NAME: str

    def tolerated(self, islands: int) -> int:
        """Number of islands whose values may be wrong."""
        ...

    def passes(self, islands: int) -> float:
        """Number of fp32 values that are read or written for each parameter."""
        ...


REGISTRY: Registry[Aggregation] = Registry(__name__, "aggregation", OptionError, by_constant=True)


def names() -> tuple[str, ...]:
    """Names of all aggregations, sorted."""
    return REGISTRY.names


def get(name: str) -> Aggregation:
    """The aggregation of a name; raises OptionError for an unknown one."""
    return REGISTRY.get(name)
