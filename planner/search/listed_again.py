"""Evaluates variants again whose pipelines were too many to list while the best plan was far slower.

A proof lists all pipelines of a variant that might beat its target, if these are few. Where faster plans are found late, as
for a target that refuses many candidates, variants were left whose pipelines have become few since."""

from __future__ import annotations

from collections.abc import Callable

from planner.search.exhaust import Exhaust, OpenVariant
from planner.search.incumbent import Incumbent
from planner.search.simulated_bound import KnownVariant
from planner.space.shape import Shape

MOST = 12
"""Variants that are evaluated again (a guess): they take 0.01 to 0.2 CPU seconds each."""
FALLEN = 0.02
"""Fraction of the best step by which it must have fallen since a variant was evaluated (a guess)."""


def list_again(
    incumbent: Incumbent,
    exhaust: Exhaust,
    settled: list[float],
    evaluated: dict[int, tuple[Shape, OpenVariant]],
    known: dict[int, KnownVariant],
    recount: Callable[[], None],
) -> None:
    """Evaluate such variants, those with the least bounds first, raise their bounds, and simulate what is found.

    evaluated, known: by the index of their bounds in `settled`; those whose pipelines are all evaluated become known. recount:
    gives the incumbent the least bound anew."""
    left = MOST
    while left > 0 and not incumbent.limit.is_up():
        fallen = incumbent.target * (1 + FALLEN)
        late = (i for i, (_, one) in evaluated.items() if settled[i] < incumbent.target and one.target > fallen)
        index = min(late, key=settled.__getitem__, default=None)
        if index is None:
            break
        left -= 1
        shape, variant = evaluated[index]
        bound, is_final = exhaust.closer(shape, variant, settled[index])
        settled[index] = max(settled[index], min(bound, incumbent.target))
        if is_final and variant.known >= bound and bound < incumbent.target:
            known[index] = KnownVariant(shape, variant, bound)
        incumbent.simulate_pool(incumbent.budgets.round_tries)
        incumbent.report("listing pipelines again")
    if left < MOST:
        incumbent.simulate_pool(incumbent.budgets.last_tries)
        recount()
