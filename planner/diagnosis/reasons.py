"""Reasons why the other shapes were not chosen: the bottleneck of their best pipeline, or the memory that they lack.

The pipelines of a shape with the least estimates (`planner.search.candidates`) have the evaluator's seconds on an idle network,
so that none is below the bound of the certificate. The search simulates the best plans before it predicts a step time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from planner.bounds.quick_estimate import quick_estimate
from planner.costs.context import PlanningContext
from planner.costs.node_classes import node_classes
from planner.search.along_a_v import is_asked
from planner.search.candidates import all_evaluated, estimates
from planner.search.rough_estimate import bottleneck
from planner.space.shape import Shape, split_backward
from planner.space.shapes import searched, variants
from planner.space.tied_shards import with_tied_shards

EVALUATED = 3
"""Pipelines of a shape with the least estimates that are evaluated under each schedule (a guess): eight took 1.5 times as long
and found faster ones on half of six fleets, by up to 2 %."""
SECONDS = 10.0
"""Seconds in which verdicts are found in any case (a guess). On 100,000 devices of eight types, one takes some seconds."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A shape under its best schedule, the seconds of a pipeline of it that is estimated to be the best (infinite where none
    fits), and the stage or link that takes longest."""

    shape: Shape
    seconds: float
    why: str


def verdicts(context: PlanningContext, most: int) -> list[Verdict]:
    """A verdict on the `most` shapes with the least quick estimates and on all that lack memory, the fastest first.

    There are fewer if the time of the request is up and `SECONDS` more have passed, but one where a shape is searched.

    For a model whose layers differ, it is on the shapes of its stand-ins, with their layers (`planner.space.stand_in`).
    None for plans along a V, whose estimates are others (`planner.search.along_a_v`)."""
    if is_asked(context.request):
        return []
    if context.stand_ins:
        found = [verdict for part in context.stand_ins.values() for verdict in verdicts(part, most)]
        return sorted(found, key=lambda verdict: verdict.seconds)
    every = [
        (quick_estimate(context, split_backward(s), node_classes(context, split_backward(s)), False), s)
        for s in (with_tied_shards(context.request, one) for one in searched(context.request))
    ]
    promising = [shape for _, shape in sorted(every, key=lambda pair: pair[0])[:most]]
    context.progress("why other layouts are slower")
    limit, found = context.limit.at_least(SECONDS), list[Verdict]()
    for shape in promising:
        if found and limit.is_up():
            break
        found.append(_of_shape(context, shape))
    found += [
        Verdict(s, math.inf, _lacking_memory(context, s)) for seconds, s in every if math.isinf(seconds) and s not in promising
    ]
    return sorted(found, key=lambda verdict: verdict.seconds)


def _of_shape(context: PlanningContext, shape: Shape) -> Verdict:
    """The verdict on a shape, from its pipelines with the least estimates."""
    estimated = [
        estimate
        for variant in variants(context.request, shape)
        for estimate in estimates(context, variant, node_classes(context, variant), EVALUATED)
    ]
    best = min(all_evaluated(estimated), key=lambda candidate: candidate.seconds, default=None)
    if best is None:
        return Verdict(shape, math.inf, _lacking_memory(context, shape))
    return Verdict(best.shape, best.seconds, bottleneck(best.evaluation, best.pipeline))


def _lacking_memory(context: PlanningContext, shape: Shape) -> str:
    """Which stages lack memory: those of the node class that can hold most of the model."""
    layers = context.request.workload.model.layers
    held = [
        (option.max_stages * option.memory.most_layers("middle", ((1, 0),)), option)
        for option in node_classes(context, split_backward(shape))
    ]
    if not held:
        return "no cluster has the devices for one of its stages"
    _, option = max(held, key=lambda pair: pair[0])
    most, number = option.memory.most_layers("middle", ((1, 0),)), option.max_stages
    stages = f"{number} stage{'s' if number > 1 else ''}"
    if number * most >= layers:
        return (
            f"memory: {stages} on {option.cluster.name} hold{'' if number > 1 else 's'} the {layers} layers beside one "
            "microbatch, but not the embedding, the head and all microbatches in flight, too"
        )
    return (
        f"memory: {option.cluster.name} has devices for up to {stages}, and each holds up to {most} of the model's {layers} "
        "layers beside one microbatch"
    )
