"""Pipelines of one stage, which the deadline test does not cover: each has a separate bound, and is simulated if promising."""

from __future__ import annotations

import math
from contextlib import suppress

from planner.bounds.single_stage import single_bound, single_seconds
from planner.costs.node_classes import NodeClass, node_classes
from planner.request import Request
from planner.search.candidates import priced
from planner.search.dominance import dominating
from planner.search.incumbent import Incumbent
from planner.space import lengths
from planner.space.runnable import runs
from planner.space.shape import Shape
from planner.space.shapes import overlaps
from sim.errors import NoRoute, NotDefined, NotModelled
from sim.plan import schedules


def single_stage_bounds(incumbent: Incumbent, shape: Shape) -> list[float]:
    """Lower bounds on all pipelines of one stage of a variant, one for each choice of `overlaps` and each class; empty where a
    pinned pp, a limit or the target excludes them."""
    every = (one for one in overlaps(shape) if runs(incumbent.request, one, 1))
    return [_bound(incumbent, one, option) for one in every for option in _able(incumbent, one)]


def may_beat_cutoff(incumbent: Incumbent, shape: Shape) -> bool:
    """Whether a pipeline of one stage might beat the best step, under any schedule and searched ZeRO stage. `shape` has the
    first of these."""
    every = (option for one in overlaps(shape) for option in _able(incumbent, one))
    return any(single_bound(placed) < incumbent.cutoff for option in every for placed in option.as_single_stage)


def _able(incumbent: Incumbent, shape: Shape) -> list[NodeClass]:
    """The classes on which a pipeline of one stage is allowed."""
    request = incumbent.request
    if shape.cluster_tp or not lengths.allows(request, shape, 1):
        return []  # a stage of one degree is that of a shape of one degree
    every = node_classes(incumbent.context, shape)
    return [option for option in every if _is_allowed(request, shape, option.cluster.name)]


def _is_allowed(request: Request, shape: Shape, name: str) -> bool:
    """Whether the only stage may be on the cluster of this name."""
    fleet = request.topology.fleet
    if not request.limits.allows_stages([name]):
        return False
    return lengths.allows_order(request, shape, [name]) and request.limits.allows_nodes(fleet, shape, {name: 1})


def _bound(incumbent: Incumbent, shape: Shape, option: NodeClass) -> float:
    """A lower bound in seconds of the pipeline of one stage on a class; infinite where it does not fit or is dominated, or
    where the target refuses each placement.

    The pipeline is simulated where the bound is below the best step. If it has one placement, it is then known not to be faster
    than the best plan, and its bound is the step that the proof searches for. Of two placements one may not be simulated, and
    some incumbents simulate none (`planner.search.early_bounds`)."""
    layers = option.workload.model.layers
    compute = option.microbatches * layers * option.layer_seconds_alone
    if compute >= incumbent.cutoff:
        return compute
    if _is_dominated(incumbent, shape, option):
        return math.inf
    least, is_modelled, ways = math.inf, False, option.as_single_stage if _fits(option, shape) else ()
    for placed in ways:
        seconds = single_seconds(placed)
        if seconds < incumbent.cutoff * (1 - incumbent.budgets.optimal_gap):
            with suppress(NotModelled):  # the closed form stays the bound
                seconds = priced(incumbent.context, shape, (placed,), [((0, layers),)], 1)[0].seconds
                is_modelled = True
        least = min(least, seconds)
    if least < incumbent.cutoff:
        stages = ((option.cluster.name, layers),)
        incumbent.offer(shape, stages)
        if (shape, stages) in incumbent.seen:
            if is_modelled and len(ways) == 1:
                return max(least, incumbent.target)
            if least < incumbent.target and not _is_built(incumbent, shape, stages):
                return math.inf
    return least


def _is_built(incumbent: Incumbent, shape: Shape, stages: tuple[tuple[str, int], ...]) -> bool:
    """Whether a placement of the pipeline can be built; the target may refuse all, such as those on parts of a node."""
    for evenly in (False, True):
        with suppress(NoRoute, NotDefined):
            incumbent.built.build(incumbent.request, shape, stages, evenly)
            return True
    return False


def _is_dominated(incumbent: Incumbent, shape: Shape, option: NodeClass) -> bool:
    """Whether the pipeline also fits on the class under the dominating variant."""
    other = dominating(incumbent.request, shape)
    if other is None or not _fits(option, shape):
        return False
    others = (one for one in node_classes(incumbent.context, other) if one.cluster == option.cluster)
    return any(_fits(one, other, kept=True) for one in others)


def _fits(option: NodeClass, shape: Shape, kept: bool = False) -> bool:
    """Whether the class has memory for all layers in one stage.

    kept: without recomputing any, where the shape leaves this to the stages."""
    held = schedules.in_flight(shape.schedule, 0, 1, option.microbatches, shape.vpp)
    most = option.memory.most_kept if kept else option.memory.most_layers
    return most("only", held, 1) >= option.workload.model.layers
