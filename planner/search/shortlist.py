"""The best of many candidates by an exact cost that is slow to compute, with the help of a quick rough cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar


class Priced(Protocol):
    """A candidate with its exact cost."""

    @property
    def seconds(self) -> float:
        """Seconds of a step that a planner predicts."""
        ...


T = TypeVar("T")
P = TypeVar("P", bound=Priced)


def shortlist(rough: Iterable[tuple[float, T]], exact: Callable[[T], Iterable[P]], number: int, deadline: float) -> list[P]:
    """The `number` best by exact cost, best first; of equals the one that came first.

    rough: (rough cost, item); exact: the candidates of an item with their exact costs; deadline: a time of `time.monotonic`,
    after which the search stops as soon as it has one candidate. Items are evaluated in the order of their rough cost, until it
    reaches the exact cost of the last on the list. Where the rough cost is never above the exact one, no better one is missed.
    """
    best: list[P] = []
    for seconds, item in sorted(rough, key=lambda pair: pair[0]):
        if (len(best) == number and seconds >= best[-1].seconds) or (best and time.monotonic() > deadline):
            break
        best = sorted([*best, *exact(item)], key=lambda priced: priced.seconds)[:number]
    return best
