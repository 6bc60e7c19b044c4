"""What a plan with sync strategies would be without each requirement, where none meets them all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from holmes_sim import requirements
from holmes_sim.conflicts import Required, share_of
from holmes_sim.islands_targets import launch_fault
from planner.islands.allowed_sync import AllowedSync
from planner.islands.search import plan_with_sync
from sim.errors import HolmesError, Infeasible, TooLate
from sim.formats.require_facts import RequireFacts
from sim.units import Seconds


def explained(
    required: Required, allowed: AllowedSync, error: Infeasible, seconds: Seconds, progress: Callable[[str], None]
) -> Infeasible:
    """The error with the requirements, and the tokens per second without each of them, planned within `seconds`.

    Where only the days are too few, the error says already what is without them."""
    items = required.items()
    others: Sequence[str] = items
    if isinstance(error, TooLate):
        days = requirements.text(RequireFacts.model_validate(requirements.written(required.where)), "days")
        others = [item for item in items if item != days]
    lines = [str(error), f"required: {'; '.join(items)}", *_without_each(required, allowed, others, seconds, progress)]
    text = "\n".join(lines)
    return TooLate(text, error.days) if isinstance(error, TooLate) else Infeasible(text)


def _without_each(
    required: Required, allowed: AllowedSync, items: Sequence[str], seconds: Seconds, progress: Callable[[str], None]
) -> Iterator[str]:
    """A line for each requirement: the best plan without it, or why there is none."""
    end = time.monotonic() + seconds
    for number, item in enumerate(items):
        share = share_of(end - time.monotonic(), len(items) - number, seconds)
        if not share:
            yield f"without {item}: not planned: no time left"
            continue
        progress(f"without {item} ({number + 1} of {len(items)})")
        try:
            yield f"without {item}: {_best(required, allowed, [one for one in required.items() if one != item], share)}"
        except HolmesError as found:
            yield f"without {item}: {str(found).splitlines()[0]}"


def _best(required: Required, allowed: AllowedSync, kept: Sequence[str], seconds: Seconds) -> str:
    """The best plan that meets some of the requirements, in words. Raises HolmesError where there is none."""
    request = required.request(kept, seconds)
    row = plan_with_sync(request, allowed, fault=launch_fault(request.topology, required.target_of(kept))).best
    worth = (
        ", of unknown worth" if row.effective is None else "" if row.price == "exact" else f", {row.effective:,.0f} effective"
    )
    return f"{row.tokens_per_s:,.0f} tokens/s{worth}, with sync {row.short}"
