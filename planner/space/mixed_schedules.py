"""Schedules of plans with mixed stages, whose replicas may differ in their number of microbatches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from planner.request import Request
from planner.space.runnable import runs
from planner.space.shape import Shape
from planner.space.shapes import variants
from sim.plan import schedules
from sim.plan.schedules import Schedule


def variants_of_mixed(request: Request, shape: Shape) -> Iterator[Shape]:
    """A shape under the schedules and ZeRO stages under which replicas may differ in their number of microbatches."""
    yield from variants(
        request,
        replace(shape, schedule=request.wishes.schedule or "1f1b"),
        lambda name, zero: zero <= 1 and not schedules.get(name).CHUNKED,
    )


def playable_variants(request: Request, shape: Shape, several: bool) -> Iterator[Shape]:
    """Those that the target can run, in pipelines of one stage or of `several`."""
    yield from (variant for variant in variants_of_mixed(request, shape) if runs(request, variant, 2 if several else 1))


def playable(request: Request, shape: Shape, several: bool) -> list[Schedule]:
    """The schedules of `playable_variants`."""
    return [schedules.get(name) for name in sorted({one.schedule for one in playable_variants(request, shape, several)})]
