"""Variants that another variant dominates: ZeRO 1 in place of ZeRO 2.

A variant dominates another if every pipeline that fits memory under the first is at least as fast under it. ZeRO 2 reduces
gradients after every microbatch and ZeRO 1 once, so the proof considers only pipelines of ZeRO 2 that do not fit under ZeRO 1,
or would recompute layers to fit.
No variant is dominated where software all-reduces gradients under ZeRO 1: a few reduce-scatters may be faster.
"""

from __future__ import annotations

from dataclasses import replace

from planner.bounds.deadline_test import DeadlineTest
from planner.bounds.greedy_filling import Pipeline
from planner.costs.node_classes import NodeClass, node_classes
from planner.request import Request
from planner.search.candidates import too_large
from planner.search.incumbent import Incumbent
from planner.space.runnable import runs
from planner.space.shape import Shape
from sim.plan import schedules


def dominating(request: Request, shape: Shape) -> Shape | None:
    """The variant that dominates a shape; None where the search has none."""
    free = shape.zero_stage == 2 and request.wishes.zero_stage is None
    other = replace(shape, zero_stage=1)
    able = request.limits.allows_shape(other) and all(runs(request, other, pp) for pp in (1, 2) if runs(request, shape, pp))
    return other if free and able and not shape.all_reduces else None


def is_dominated(incumbent: Incumbent, shape: Shape) -> bool:
    """Whether every pipeline of a variant that might beat the target also fits under the dominating variant."""
    other = dominating(incumbent.request, shape)
    if other is None:
        return False
    layers = incumbent.request.workload.model.layers
    classes = node_classes(incumbent.context, other)
    longest = min(sum(option.max_stages for option in classes), layers // shape.vpp)
    microbatches = classes[0].microbatches if classes else 0
    held = (schedules.most_in_flight(shape.schedule, longest, microbatches, shape.vpp),)

    def has_room(option: NodeClass) -> bool:
        alone, needed = (
            min(incumbent.target / (option.microbatches * seconds), layers)
            for seconds in (option.layer_seconds_alone, option.layer_seconds)
        )
        memory, heads = option.memory, _heads(shape, longest, microbatches)
        by_role = {"first": needed, "middle": needed, "last": needed, "only": alone}
        return all(memory.most_kept(role, held) >= most for role, most in by_role.items()) and all(
            memory.most_kept("last", in_flight, pp) >= needed for pp, in_flight in heads
        )

    return all(map(has_room, classes))


def _heads(shape: Shape, longest: int, microbatches: int) -> list[tuple[int, tuple[tuple[int, int], ...]]]:
    """(stages, microbatches in flight on the last one) of pipelines of up to `longest` stages, under a schedule with chunks.

    A short pipeline may hold more microbatches of the head than a long one (`sim.kernels.memory.heads_in_flight`)."""
    if shape.vpp == 1:
        return []
    name, vpp = shape.schedule, shape.vpp
    defined = [pp for pp in range(2, longest + 1) if schedules.is_defined(name, pp, microbatches, vpp)]
    return [(pp, schedules.in_flight(name, pp - 1, pp, microbatches, vpp)) for pp in defined]


def undominated(incumbent: Incumbent, shape: Shape, test: DeadlineTest, seconds: float, most: int) -> list[Pipeline] | None:
    """Pipelines of a test that might finish within `seconds`, without dominated ones; None where the test lists over `most`."""
    pipelines, other = test.pipelines(seconds, most), dominating(incumbent.request, shape)
    if not pipelines or other is None:
        return pipelines
    named = {option.cluster.name: option for option in node_classes(incumbent.context, other)}
    classes = tuple(named[option.cluster.name] for option in test.order if option.cluster.name in named)
    return too_large(incumbent.context, other, classes, pipelines) if len(classes) == len(test.order) else pipelines
