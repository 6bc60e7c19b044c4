"""Shapes of the stand-ins of a model whose layers differ, as the search takes them: each by itself, and by its variants."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from planner.request import Request
from planner.space import stand_in
from planner.space.shape import Shape
from planner.space.shapes import overlaps, searched, variants
from planner.space.tied_shards import with_tied_shards
from planner.space.unlike_tp import unlike_shapes
from sim.errors import Infeasible
from sim.plan.parallel_config import ParallelConfig


@dataclass(frozen=True, slots=True)
class Open:
    """A shape with the stand-in that has it, or its `variants` with one schedule and vpp, under all ZeRO stages."""

    part: Request
    shape: Shape
    variants: tuple[Shape, ...] = ()


def open_shapes(request: Request) -> Iterator[Open]:
    """The searched shapes of every stand-in."""
    for part in stand_in.stand_ins(request):
        with suppress(Infeasible):
            every = [with_tied_shards(part, shape) for shape in searched(part)]
            equal = [shape for shape in every if shape.divides(part.workload)]
            yield from (Open(part, shape) for shape in (*every, *unlike_shapes(part, equal)))


def of_each_schedule(one: Open) -> Iterator[Open]:
    """The variants of a shape, together with those that differ in the ZeRO stage and the order of weight gathers only."""
    found: dict[tuple[str, int], list[Shape]] = {}
    for variant in variants(one.part, one.shape):
        found.setdefault((variant.schedule, variant.vpp), []).extend(overlaps(variant))
    yield from (Open(one.part, every[0], tuple(every)) for every in found.values())


def layout_of(config: ParallelConfig | Shape) -> tuple[object, ...]:
    """The layout of a plan or shape without its ZeRO stage: degrees, microbatch size, recomputation; last schedule and vpp."""
    degrees = config.tp, config.dp, config.cp, config.ep, config.etp
    return (*degrees, config.microbatch_size, config.recompute, config.schedule, config.vpp)
