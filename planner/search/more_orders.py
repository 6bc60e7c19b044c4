"""Raises the bounds of variants that a proof left because too many orders of their classes might be as fast.

A proof lists the pipelines of few orders of many classes. Where it leaves a gap, and an order has few numbers of stages of each
class, thousands of orders are listed here, as long as such a variant has the least bound of all."""

from __future__ import annotations

from collections.abc import Callable

from planner.search.exhaust import Exhaust, OpenVariant
from planner.search.incumbent import Incumbent
from planner.search.simulated_bound import KnownVariant
from planner.space.shape import Shape


def list_more_orders(
    incumbent: Incumbent,
    exhaust: Exhaust,
    settled: list[float],
    left: dict[int, tuple[Shape, OpenVariant]],
    known: dict[int, KnownVariant],
    recount: Callable[[], None],
) -> None:
    """Raise settled bounds of the variants that are `left`, and simulate the fastest pipelines that are found on the way.

    left, known: by the index of their bounds in `settled`; those whose pipelines are evaluated become known. recount: gives the
    incumbent the least bound anew."""
    while left and incumbent.lower_bound < incumbent.target and not incumbent.limit.is_up():
        index = min(left, key=settled.__getitem__)
        if settled[index] > incumbent.lower_bound:
            return
        shape, variant = left[index]
        bound, is_final = exhaust.with_many_orders(shape, variant, settled[index])
        settled[index] = min(bound, incumbent.target)
        if is_final or bound >= incumbent.target:
            del left[index]
            if variant.known >= bound:
                known[index] = KnownVariant(shape, variant, bound)
        incumbent.simulate_pool(incumbent.budgets.last_tries)
        recount()
        incumbent.report("listing more orders of clusters")
