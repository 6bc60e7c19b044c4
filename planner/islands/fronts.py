"""Plans that trade speed, money and the statistical price: none is as good as another one in all three."""

from __future__ import annotations

from collections.abc import Iterable

from planner.islands.row_limits import usd_per_token
from planner.islands.search import NEAR, given_up
from planner.islands.sync_rows import SyncRow
from sim.sync import PRICES


def comparable(rows: Iterable[SyncRow]) -> list[SyncRow]:
    """The rows whose tokens have a known worth; all rows where none has."""
    every = list(rows)
    return [row for row in every if row.worth is not None] or every


def front(rows: Iterable[SyncRow]) -> tuple[SyncRow, ...]:
    """Of comparable rows, those for which no other row gives up no more, costs no more and is about as fast (`NEAR`); the
    fastest first.

    What is given up is ordered by the price, the inner steps and the compression. Cost is the rent for a token of synchronous
    training; where a device has no price, it is not compared."""
    every = comparable(rows)
    has_costs = all(usd_per_token(row) is not None for row in every)
    keys = {id(row): (_price(row), (usd_per_token(row) or 0.0) if has_costs else 0.0) for row in every}
    kept: list[SyncRow] = []
    for row in sorted(every, key=lambda row: (*keys[id(row)], -row.speed)):
        (price, cost), least = keys[id(row)], row.speed * (1 - NEAR)
        better = (one for one in kept if keys[id(one)][0] <= price and keys[id(one)][1] <= cost * (1 + NEAR))
        if not any(one.speed >= least for one in better):
            kept.append(row)
    return tuple(sorted(kept, key=lambda row: -row.speed))


def _price(row: SyncRow) -> tuple[int, int, float]:
    """What a row gives up, from nothing to most: all exact plans and sums of every step alike, if they round nothing."""
    return (0, 1, 0.0) if row.price == "exact" else (tuple(PRICES).index(row.price), *given_up(row))
