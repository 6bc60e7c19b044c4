"""The best of many candidates by an exact cost that is slow to compute, ordered and pruned by a quick rough cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
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


def best_of_each(rough: Iterable[tuple[float, T]], kind: Callable[[T], Hashable], most: int) -> Iterator[tuple[float, T]]:
    """The `most` items of each kind with the least rough costs, in their order; rough: (rough cost, item)."""
    taken = Counter[Hashable]()
    for seconds, item in sorted(rough, key=lambda pair: pair[0]):
        taken[kind(item)] += 1
        if taken[kind(item)] <= most:
            yield seconds, item
