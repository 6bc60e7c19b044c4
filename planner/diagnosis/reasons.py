"""Why other shapes lost: the best pipeline found of each, and what its latest stage spends the step on; or what lacks memory.

Seconds are the rough ones of `planner.search.candidates`, on an idle network: what wins by them is played before it is
promised.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from planner.bounds.relaxation import quick_estimate
from planner.costs.context import Workshop
from planner.costs.node_classes import options
from planner.search.candidates import Sketch, sketches
from planner.space.shapes import Shape, searched, splitting, variants


@dataclass(frozen=True, slots=True)
class Verdict:
    """A shape under its best schedule, about how long its best pipeline takes (infinite where none fits), and why."""

    shape: Shape
    seconds: float
    why: str


def verdicts(workshop: Workshop, most: int) -> list[Verdict]:
    """A verdict on the `most` promising shapes and on all that lack memory, the fastest first."""
    every = [
        (quick_estimate(workshop, splitting(s), options(workshop, splitting(s)), False), s) for s in searched(workshop.question)
    ]
    promising = [shape for _, shape in sorted(every, key=lambda pair: pair[0])[:most]]
    found = [_verdict(workshop, shape) for shape in promising]
    found += [Verdict(s, math.inf, _no_room(workshop, s)) for seconds, s in every if math.isinf(seconds) and s not in promising]
    return sorted(found, key=lambda verdict: verdict.seconds)


def _verdict(workshop: Workshop, shape: Shape) -> Verdict:
    best: Sketch | None = None
    for variant in variants(workshop.question, shape):
        for sketch in sketches(workshop, variant, options(workshop, variant))[:1]:
            best = sketch if best is None or sketch.seconds < best.seconds else best
    if best is None:
        return Verdict(shape, math.inf, _no_room(workshop, shape))
    return Verdict(best.drawing.shape, best.seconds, best.drawing.told(best.row))


def _no_room(workshop: Workshop, shape: Shape) -> str:
    """Which stages lack memory: those of the class that holds most of the model."""
    layers = workshop.question.workload.model.layers
    rooms = [(option.capacity * option.room("middle", ((1, 0),)), option) for option in options(workshop, splitting(shape))]
    if not rooms:
        return "no cluster holds one of its stages"
    _, option = max(rooms, key=lambda room: room[0])
    return (
        f"memory: {option.capacity} stages of {option.cluster.name} hold {option.room('middle', ((1, 0),))} of {layers} layers "
        f"each beside one microbatch"
    )
