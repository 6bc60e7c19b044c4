"""Prices of resources for which columns compute most: the dual of the master programme of a column generation, without
whole numbers.

Column j takes a[j, c] of resource c and computes s[j] samples; there are n[c] of each. With prices p >= 0 such that no column
computes more samples than its resources cost, all columns together compute at most what all resources cost. The least such
cost is also the most that any shares of the columns compute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from planner.models.solver import NothingFound, Programme, real_value, total
from planner.time_limit import TimeLimit


@dataclass(frozen=True, slots=True)
class Taken:
    """What a column takes of each resource, and the samples that it computes."""

    resources: tuple[float, ...]
    samples: float


def least_prices(columns: Sequence[Taken], available: Sequence[float], limit: TimeLimit) -> tuple[float, ...] | None:
    """The prices of the resources, in samples, at which all that are available cost least; None where no solution was found."""
    programme = Programme("prices")
    prices = [programme.real(f"p{number}") for number in range(len(available))]
    for number, column in enumerate(columns):
        cost = total((price, taken) for price, taken in zip(prices, column.resources, strict=True) if taken)
        programme.require(f"column{number}", cost >= column.samples)
    programme.minimise(total(zip(prices, available, strict=True)))
    try:
        solution = programme.solve(1, limit)
    except NothingFound:
        return None
    return tuple(real_value(price) for price in prices) if solution is not None else None
