"""The best of many candidates when a rough cost is quick and the exact one is not."""

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

    Items are looked at in the order of their rough cost, until it is above the cost of the last on the list: where the rough
    cost is never above the exact, nothing better is missed. Beyond the deadline, a time of `time.monotonic`, one is enough.
    """
    best: list[P] = []
    for seconds, item in sorted(rough, key=lambda pair: pair[0]):
        if (len(best) == number and seconds >= best[-1].seconds) or (best and time.monotonic() > deadline):
            break
        best = sorted([*best, *exact(item)], key=lambda priced: priced.seconds)[:number]
    return best
