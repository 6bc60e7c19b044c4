"""Least seconds of messages between stages whose classes may follow one another in any order."""

from __future__ import annotations

import math
from collections.abc import Sequence

from planner.costs.context import PlanningContext
from planner.costs.node_classes import NodeClass


def messages_between(context: PlanningContext, classes: Sequence[NodeClass]) -> list[list[float]]:
    """Least seconds of a message from a stage of each class to a neighbouring one of each class, over all positions and NICs.

    Infinite where the two cannot be neighbours: without a route, or of a class with a single stage."""
    shape = classes[0].shape
    return [
        [math.inf if a is b and a.max_stages == 1 else context.messages.least(a.cluster, b.cluster, shape) for b in classes]
        for a in classes
    ]


def least_tied(context: PlanningContext, classes: Sequence[NodeClass]) -> float:
    """Least seconds of the tied embedding's all-reduce between the first and the last stage, which may be on any classes; 0
    where the embedding is not tied."""
    shape, layers = classes[0].shape, classes[0].workload.model.layers
    most = min(max(option.max_stages for option in classes), layers)
    ends = ((a, b) for a in classes for b in classes if a is not b or a.max_stages > 1)
    every = (context.tied.least(a.cluster, b.cluster, shape, most) for a, b in ends)
    return min(filter(math.isfinite, every), default=0.0)
