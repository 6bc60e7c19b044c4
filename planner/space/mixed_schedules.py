"""Schedules of plans with mixed stages, whose replicas may differ in their number of microbatches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from planner.request import Request
from planner.space.runnable import runs, takes_unlike_microbatches
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


def runs_alike(request: Request, shape: Shape, pp: int, able: Iterable[Schedule]) -> bool:
    """Whether all replicas of a pipeline of `pp` stages have equally many microbatches under each of these schedules."""
    names = [one.NAME for one in able]
    variants = (one for one in variants_of_mixed(request, shape) if one.schedule in names)
    one_each = request.workload.global_batch_size // shape.microbatch_size == shape.dp
    return one_each or not any(takes_unlike_microbatches(request, variant, pp) for variant in variants)
