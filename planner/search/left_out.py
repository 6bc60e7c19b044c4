"""Texts of what the search leaves out of its space that a plan may have for each stage, or for modules of its layers."""

from __future__ import annotations

from collections.abc import Iterator

from planner.request import Request
from planner.space.tried_modules import may_recompute_modules
from planner.space.unlike_degrees import tried_degrees

TRIED = "(tried, without a proof)"
"""What is said of plans outside of the space that a search tries (`planner.search.unlike_degrees`, `short_chunks`)."""

BOUNDED = "(tried and bounded apart)"
"""What is said of them in place of that where a bound of their own is known (`planner.search.unlike_degrees_proof`)."""


def recomputed(request: Request, blocks: bool, tried: bool) -> Iterator[str]:
    """The text of recomputation that is left out, or `tried` where that may be (`planner.space.tried_modules`). `blocks`: some
    layers of each stage are searched."""
    if not request.wishes.recompute:
        layers, keys = ("", "") if blocks else ("layers or ", "recompute_layers, ")
        known = f" {TRIED}" if tried and may_recompute_modules(request) else ""
        yield f"recomputation of chosen {layers}modules ({keys}recompute_modules, stage_recompute){known}"


def by_stage(request: Request, tried: bool) -> Iterator[str]:
    """The text of degrees, ZeRO stages and microbatch sizes that are one for all stages, of those that are not pinned, and of
    degrees that differ only in plans that are `tried` (`planner.space.unlike_degrees`). On the fleets that were tried, unlike
    ZeRO stages and microbatch sizes made no plan faster (docs/scale.md)."""
    wishes, experts = request.wishes, request.workload.model.experts
    pinned = {
        "cp": wishes.cp,
        "ep": wishes.ep if experts else 1,
        "etp": wishes.etp if experts else 1,
        "zero": wishes.zero_stage,
        "microbatch_size": wishes.microbatch_size,
    }
    if wishes.pp == 1 or request.workload.model.layers == 1:
        return
    free, differ = [name for name, value in pinned.items() if value is None], tried_degrees(request) if tried else ()
    for words, every in ((TRIED, set(differ)), ("(one for all stages)", set(free) - set(differ))):
        names = [f"stage_{name}" for name in free if name in every]
        if names:
            yield f"{', '.join(names)} {words}"
