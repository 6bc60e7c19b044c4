"""Orders of node classes along a pipeline in which the stage programme is solved."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise, permutations

from planner.costs.context import PlanningContext
from planner.costs.node_classes import NodeClass
from planner.space import lengths

EVERY_ORDER = 3
"""Number of classes up to which all orders are solved (a guess): n classes have n! orders, and each is a programme."""
EXACT_PATH = 7
"""Number of classes up to which the cheapest order of more classes is found by enumeration (a guess): 7! = 5,040 paths."""


def orders(context: PlanningContext, classes: list[NodeClass]) -> list[tuple[NodeClass, ...]]:
    """All orders of up to `EVERY_ORDER` classes; of more classes, the order with the cheapest messages over its borders, and
    its reverse. With other ends than the limits allow, the classes of the ends are moved to these."""
    limits = context.request.limits
    if len(classes) <= EVERY_ORDER:
        every = list(permutations(classes))
    else:
        best = _cheapest_order(context, classes)
        every = [_with_ends(one, limits.first, limits.last) for one in (best, best[::-1])]
    named = ((order, [option.cluster.name for option in order]) for order in filter(None, every))
    return [order for order, names in named if lengths.allows_order(context.request, order[0].shape, names)]


def near_sets(context: PlanningContext, classes: Sequence[NodeClass]) -> list[tuple[NodeClass, ...]]:
    """Sets of two classes or more that are joined by cheap messages: from each class on, the class that is nearest to one of
    the set is added. Sets of classes without a route are left out."""
    shape, found, least = classes[0].shape, dict[frozenset[int], None](), context.messages.least
    between = [[least(a.cluster, b.cluster, shape) if a is not b else math.inf for b in classes] for a in classes]
    for begin in range(len(classes)):
        some = {begin}
        while len(some) < len(classes):
            left = (i for i in range(len(classes)) if i not in some)
            seconds, nearest = min((min(between[j][i] for j in some), i) for i in left)
            if math.isinf(seconds):
                break
            some.add(nearest)
            found[frozenset(some)] = None
    return [tuple(classes[i] for i in sorted(some)) for some in found]


def _with_ends(order: tuple[NodeClass, ...], first: str, last: str) -> tuple[NodeClass, ...]:
    """The order with the classes of two clusters, where it has them, moved to its ends."""
    return tuple(sorted(order, key=lambda one: (one.cluster.name == last, one.cluster.name != first)))


def _cheapest_order(context: PlanningContext, classes: list[NodeClass]) -> tuple[NodeClass, ...]:
    """The order with the cheapest messages over its borders."""
    shape = classes[0].shape

    pairs = [(a.cluster, b.cluster) for a, b in permutations(classes, 2)]
    borders = {(a.name, b.name): context.messages.least(a, b, shape) for a, b in pairs}

    def price(order: tuple[NodeClass, ...]) -> float:
        return sum(borders[a.cluster.name, b.cluster.name] for a, b in pairwise(order))

    return min(permutations(classes), key=price) if len(classes) <= EXACT_PATH else _greedy_order(classes, price)


def _greedy_order(classes: list[NodeClass], price: Callable[[tuple[NodeClass, ...]], float]) -> tuple[NodeClass, ...]:
    """A short path by cheapest insertion (Rosenkrantz, Stearns and Lewis, SIAM Journal on Computing 6(3), 1977): each class is
    inserted where it lengthens the path least."""
    path: tuple[NodeClass, ...] = ()
    for option in classes:
        path = min(((*path[:i], option, *path[i:]) for i in range(len(path) + 1)), key=price)
    return path
