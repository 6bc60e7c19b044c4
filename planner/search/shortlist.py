"""The best of many candidates by an exact cost that is slow to compute, ordered and pruned by a quick rough cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from planner.time_limit import TimeLimit


class Priced(Protocol):
    """A candidate with its exact cost."""

    @property
    def seconds(self) -> float:
        """Seconds of a step that a planner predicts."""
        ...


T = TypeVar("T")
P = TypeVar("P", bound=Priced)


def shortlist(rough: Iterable[tuple[float, T]], exact: Callable[[T], Iterable[P]], number: int, limit: TimeLimit) -> list[P]:
    """The `number` best by exact cost, best first; of equal ones, the first evaluated.

    rough: (rough cost, item); exact: the candidates of an item with their exact costs; once the time limit is
    reached, the search stops as soon as it has one candidate. Items are evaluated in the order of their rough costs, until
    the next rough cost is at least the exact cost of the last candidate on the list. If no rough cost is above its exact cost,
    the result is exact."""
    best: list[P] = []
    for seconds, item in sorted(rough, key=lambda pair: pair[0]):
        if (len(best) == number and seconds >= best[-1].seconds) or (best and limit.is_up()):
            break
        best = sorted([*best, *exact(item)], key=lambda priced: priced.seconds)[:number]
    return best
