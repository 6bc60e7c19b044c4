"""Other numbers of stages where messages share links: a pipeline of each is simulated.

The search prefers pipelines that are fast on an idle network. Long pipelines are, but each node between two others sends
activations one way and gradients the other, and where its NIC is slow they wait for each other. A pipeline on fewer nodes has
fewer such nodes. So for the shapes of the fastest plans a pipeline of each other number of stages is simulated, where that
takes little time, with as many stages on each cluster as its share in the fastest plan. Those that come near the best plan are
then improved by `planner.search.crowded_links`. Such plans prove nothing."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from planner.costs.node_classes import node_classes
from planner.search.candidates import Estimate, all_evaluated
from planner.search.evaluation import PipelineEvaluation
from planner.search.generation import assigned_layers
from planner.search.incumbent import Incumbent
from planner.space.lengths import allows_stages
from planner.space.shape import Shape
from sim.plan.plan import Plan

SHAPES, FORWARDS = 2, 2_000
"""How many of the fastest shapes are tried, and number of forwards (stages times microbatches) below which a pipeline is
simulated. Guesses: more take longer."""


def simulate_lengths(incumbent: Incumbent) -> None:
    """Simulate a pipeline of each number of stages that the fastest shapes were not simulated with, if it takes less than the
    best plan on an idle network and has few forwards. Only where the bound leaves something to gain."""
    if incumbent.best is None or incumbent.lower_bound >= incumbent.target:
        return
    for shape, plan in fastest_shapes(incumbent)[:SHAPES]:
        for candidate in all_evaluated([one for one in _pipelines(incumbent, shape, plan) if one.forwards < FORWARDS]):
            if incumbent.limit.is_up():
                return
            if candidate.seconds < incumbent.target:
                incumbent.simulate(candidate)
                incumbent.report("simulating other numbers of stages")


def fastest_shapes(incumbent: Incumbent) -> list[tuple[Shape, Plan]]:
    """The shapes without virtual stages of the fastest plans that were offered, and their fastest plan, the fastest first."""
    found: dict[Shape, Plan] = {}
    for (shape, _), (_, plan) in sorted(incumbent.fastest_of.items(), key=lambda item: item[1][0]):
        if shape.vpp == 1:
            found.setdefault(replace(shape, overlap_param_gather=plan.config.overlap_param_gather), plan)
    return list(found.items())


def _pipelines(incumbent: Incumbent, shape: Shape, plan: Plan) -> Iterator[Estimate]:
    """A pipeline of each number of stages on the clusters of a plan, in their order, where memory and the request allow one."""
    used = Counter(plan.placement[plan.config.first_rank(stage)].cluster for stage in range(plan.config.pp))
    classes = tuple(one for one in node_classes(incumbent.context, shape) if one.cluster.name in used)
    number = {one.cluster.name: i for i, one in enumerate(classes)}
    evaluation = PipelineEvaluation(incumbent.context, shape, classes)
    capacity = {name: classes[i].max_stages for name, i in number.items()}
    for pp in range(max(len(used), 2), min(sum(capacity.values()), evaluation.layers) + 1):
        kind = replace(shape, overlap_param_gather=True), pp
        names = [name for name, count in _shares(used, capacity, pp).items() for _ in range(count)]
        if kind in incumbent.fastest_of or not allows_stages(incumbent.request, shape, names):
            continue
        stages = [number[name] for name in names]
        layers = assigned_layers(evaluation, stages)
        if layers is not None:
            yield Estimate(0.0, evaluation, tuple(zip(stages, layers, strict=True)))


def _shares(used: Mapping[str, int], capacity: Mapping[str, int], pp: int) -> dict[str, int]:
    """`pp` stages divided among clusters in proportion to those of a plan, at least one each and at most their capacities: one
    by one to the cluster that has the smallest part of its own."""
    counts = dict.fromkeys(used, 1)
    for _ in range(pp - len(counts)):
        most = min(counts, key=lambda name: (counts[name] + 1) / used[name] if counts[name] < capacity[name] else math.inf)
        counts[most] += 1
    return counts
