"""Orders of node classes along a pipeline in which the stage programme is solved."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise, permutations

from planner.costs.context import PlanningContext
from planner.costs.node_classes import NodeClass

EVERY_ORDER = 3
"""Number of classes up to which all orders are solved (a guess): n classes have n! orders, and each is a programme."""
EXACT_PATH = 7
"""Number of classes up to which the cheapest order of more classes is found by enumeration (a guess): 7! = 5,040 paths."""


def orders(context: PlanningContext, classes: list[NodeClass]) -> list[tuple[NodeClass, ...]]:
    """All orders of up to `EVERY_ORDER` classes; of more classes, the order with the cheapest messages over its borders, and
    its reverse."""
    if len(classes) <= EVERY_ORDER:
        return list(permutations(classes))
    shape = classes[0].shape

    pairs = [(a.cluster, b.cluster) for a, b in permutations(classes, 2)]
    borders = {(a.name, b.name): context.messages.least(a, b, shape) for a, b in pairs}

    def price(order: tuple[NodeClass, ...]) -> float:
        return sum(borders[a.cluster.name, b.cluster.name] for a, b in pairwise(order))

    best = min(permutations(classes), key=price) if len(classes) <= EXACT_PATH else _greedy_order(classes, price)
    return [best, best[::-1]]


def _greedy_order(classes: list[NodeClass], price: Callable[[tuple[NodeClass, ...]], float]) -> tuple[NodeClass, ...]:
    """A short path by cheapest insertion (Rosenkrantz, Stearns and Lewis, SIAM Journal on Computing 6(3), 1977): each class is
    inserted where it lengthens the path least."""
    path: tuple[NodeClass, ...] = ()
    for option in classes:
        path = min(((*path[:i], option, *path[i:]) for i in range(len(path) + 1)), key=price)
    return path
