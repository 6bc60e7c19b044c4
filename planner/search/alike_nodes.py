"""Pipelines whose inner nodes are alike, where messages share NICs: their layers repeat from node to node.

Each node between two others sends activations one way and gradients the other over its NIC. Where both take most of the step,
they should take turns. If one node has other layers than the next, they come at other times there, wait for each other, and no
move of a single layer makes the step shorter. So pipelines on one cluster are built in which all nodes between the first and
the last have the same layers, with fewer on the stages at their borders, and the first and the last node share what is left.
Those that the closed form leaves below the target are simulated, the fastest first. Such plans prove nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

from planner.bounds.greedy_filling import Pipeline
from planner.costs.node_classes import NodeClass, node_classes
from planner.costs.stage_positions import period
from planner.search.candidates import Candidate
from planner.search.evaluation import PipelineEvaluation
from planner.search.incumbent import Incumbent
from planner.search.other_lengths import SHAPES, fastest_shapes
from planner.search.quick_trials import QuickTrials
from planner.space.lengths import allows_stages
from planner.space.shape import Shape
from sim.errors import NotModelled

FEWER = 3
"""Most layers that a stage at a border of a node has less than one inside (a guess)."""
UNLIKE = 2
"""Largest difference of layers of two stages of the first and the last node (a guess)."""
CROWDED = 0.5
"""Fraction of the best step that all messages over the NIC of an inner node take at least (a guess): with less, they seldom
wait for each other."""
TRIES = 24
"""Simulations of a shape in a row without a faster plan, after which no more are run (a guess): the plan of `peers/metis-128`
is the third of its shape."""


def simulate_alike(incumbent: Incumbent, least: Sequence[Shape]) -> None:
    """Simulate pipelines with alike inner nodes of the fastest shapes and of those with the `least` bounds, where they may be
    faster than the best plan and the messages of a node take much of its step (`CROWDED`)."""
    if not least or incumbent.lower_bound >= incumbent.target:
        return
    quick, shapes = QuickTrials(incumbent), [shape for shape, _ in fastest_shapes(incumbent)[:SHAPES]]
    for shape in dict.fromkeys([*(replace(one, overlap_param_gather=True) for one in least), *shapes]):
        for option in node_classes(incumbent.context, shape) if shape.vpp == 1 else ():
            try:
                every = _candidates(incumbent, shape, option)
            except NotModelled:
                continue
            tried = 0
            for candidate in every:
                if tried >= TRIES or candidate.seconds >= incumbent.target or incumbent.limit.is_up():
                    break
                tried += 1
                if (candidate.shape, candidate.stages) not in incumbent.seen and not quick.rules_out(shape, candidate.stages):
                    tried = 0 if incumbent.simulate(candidate) else tried
                incumbent.report("simulating pipelines with alike nodes")


def _candidates(incumbent: Incumbent, shape: Shape, option: NodeClass) -> list[Candidate]:
    """The pipelines of a shape on one cluster with alike inner nodes, those with the least bounds first. Raises NotModelled."""
    per_node, layers = period(option.cluster, shape), option.workload.model.layers
    whole = option.cluster.node.count % (shape.tp_on(option.cluster.name) * shape.slots) == 0  # stages on each node
    if per_node < 2 or not whole or min(option.max_stages, layers) <= 2 * per_node:
        return []
    evaluation, found = PipelineEvaluation(incumbent.context, shape, (option,)), list[Pipeline]()
    if evaluation.link_seconds(((0, 1),) * (2 * per_node + 1)) < CROWDED * incumbent.cutoff:
        return []
    for pp in range(2 * per_node + 1, min(option.max_stages, layers) + 1):
        if allows_stages(incumbent.request, shape, [option.cluster.name] * pp):
            capacity = evaluation.layer_capacity([0] * pp)
            every = (one for one in patterns(layers, pp, per_node) if all(map(int.__le__, one, capacity)))
            found += [tuple((0, count) for count in one) for one in every]
    return [Candidate.of(evaluation, seconds, pipeline) for seconds, pipeline in evaluation.evaluated(found)]


def patterns(layers: int, pp: int, per_node: int) -> Iterator[tuple[int, ...]]:
    """Layers of each of pp stages, `per_node` on each node but the last one, so that all nodes between the first and the last
    have the same, and the first and the last divide the others as evenly as whole layers can.

    The last stage of the first node, and the first one of the last node, have as many as such stages of the others."""
    nodes = math.ceil(pp / per_node)
    rest, seen = pp - (nodes - 1) * per_node, set[tuple[int, ...]]()
    for inner in range(1, layers // pp + FEWER):
        borders = range(max(1, inner - FEWER), inner + 1)
        for begin, end in product(borders, borders):
            middle = (begin, *[inner] * (per_node - 2), end)[:per_node]
            left = layers - (nodes - 2) * sum(middle) - end - begin * (rest > 1)
            for ahead in range(per_node - 1, left + 1):
                first, last = _even(ahead, per_node - 1), _even(left - ahead, max(rest - 1, 1))
                if min(last) < 1 or max(*first, *last) - min(*first, *last) > UNLIKE:
                    continue
                found = (*first, end, *middle * (nodes - 2), *[begin] * (rest > 1), *last[::-1])
                if found not in seen:
                    seen.add(found)
                    yield found


def _even(layers: int, stages: int) -> tuple[int, ...]:
    """Layers of stages that differ by at most one, the fewest first."""
    return tuple((layers + stage) // stages for stage in range(stages))
