"""Faster plans whose stages have degrees of their own on each cluster, beside the proof.

A cluster of few or of small devices does best with other degrees than the rest of the fleet: with one tp and dp for all stages,
stages have equally many devices, some of which are left idle, or too much tensor parallelism. Here each cluster has its own tp
and dp, and its own cp, ep and etp where the target takes them (`planner.space.unlike_degrees`). A layout is first estimated by
the speed of its stages alone, as if layers could be divided: with m microbatches and n stages, m - 1 + n times the seconds of a
stage (less where the schedule splits the backward). The layouts with the least estimates get whole layers, as memory allows
(list scheduling), and an estimate with messages and gradients. The best of these get a plan, which is evaluated on an idle
network; layers of the fastest are moved one by one, and these are simulated. Such plans are outside of the space that the
certificate holds for; they have a bound of their own (`planner.search.unlike_degrees_proof`)."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

from planner.costs.context import PlanningContext
from planner.costs.node_classes import NodeClass, node_classes
from planner.placement.shared_hosts import SharedHosts, on_shared_hosts
from planner.placement.simulation import fits, step
from planner.placement.unlike_degrees import build_unlike
from planner.request import Request
from planner.search.evaluation import roles
from planner.search.incumbent import Incumbent
from planner.space.device_slots import minmax_layers
from planner.space.shape import Shape
from planner.space.unlike_degrees import are_unlike, matching, may_differ, may_tie, own_shapes, templates
from planner.target import ANY
from sim.analytic.evaluator import evaluate
from sim.errors import NoRoute, PlanError
from sim.plan import schedules
from sim.plan.plan import Plan
from sim.units import Seconds


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbouring stages on the nodes of one class, under a shape of their own.

    rate: layers of a microbatch that all of them together compute in a second; capacity: layers that fit their memory; fill:
    fraction of a stage's forward and backward for which other stages wait while the pipeline fills and drains."""

    option: NodeClass
    stages: int
    rate: float
    capacity: int
    fill: float

    @classmethod
    def of(cls, option: NodeClass, stages: int) -> Run:
        """The run of so many stages."""
        fill = 2 * option.forward_share if option.splits else 1.0
        each = option.memory.most_layers("middle", ((1, 0),))
        return cls(option, stages, stages / option.layer_seconds, stages * each, fill)


Layout: TypeAlias = tuple[Run, ...]
"""The runs of a pipeline, in its order."""
Priced: TypeAlias = tuple[Seconds, Layout, tuple[int, ...], Plan]
"""Seconds on an idle network, layout, layers of each stage, and the plan."""


class _Orders:
    """The orders of runs in a pipeline that a target takes."""

    def __init__(self, context: PlanningContext):
        self._hosts, self._tied = hosts_of(context), context.request.workload.model.tied_embeddings

    def of(self, layout: Layout) -> Iterator[Layout]:
        """Every order of a layout in which no run has more stages on shared hosts than the target takes there, and both ends
        may share a tied embedding."""
        each = [(run.option.cluster, run.option.own) for run in layout]
        most = [self._hosts.most(own, each[:i] + each[i + 1 :]) for i, own in enumerate(each)]
        before = [run.stages <= one.before for run, one in zip(layout, most, strict=True)]
        last = [run.stages <= one.last for run, one in zip(layout, most, strict=True)]
        for order in itertools.permutations(range(len(layout))):
            first, end = (layout[i].option.own for i in (order[0], order[-1]))
            if last[order[-1]] and all(before[i] for i in order[:-1]) and (may_tie(first, end) or not self._tied):
                yield tuple(layout[i] for i in order)


def hosts_of(context: PlanningContext) -> SharedHosts:
    """What the target of a context's request takes of stages that share hosts, asked once for all its searches."""
    if context.shared_hosts is None:
        context.shared_hosts = SharedHosts(context.request)
    found: SharedHosts = context.shared_hosts
    return found


def try_unlike(incumbent: Incumbent, bases: Iterable[Shape]) -> None:
    """Simulate the best plans with unlike degrees, where they may be faster than the best plan by `Budgets.target_gap`, or by
    `Budgets.unlike_gain` if any framework may run the plan."""
    request, context, budgets = incumbent.request, incumbent.context, incumbent.budgets
    if incumbent.best is None or context.every_step or not may_differ(request) or incumbent.limit.is_up():
        return
    incumbent.report("trying stages of unlike degrees")
    shapes, own = templates(request, bases), incumbent.best.config.schedule
    names = sorted({shape.schedule for shape in shapes}, key=lambda name: (name != own, name))
    with context.effort.spent("estimates"):
        every = (_fastest(incumbent, [shape for shape in shapes if shape.schedule == name]) for name in names)
        found = sorted(itertools.chain.from_iterable(every), key=lambda one: one[0])
    gain = budgets.unlike_gain if request.target is not None and request.target.name == ANY else budgets.target_gap
    target = incumbent.cutoff * (1 - gain)
    for seconds, *_, plan in found[: budgets.unlike_tries]:
        target = min(target, incumbent.target)
        if seconds >= target or incumbent.limit.is_up():
            return
        with context.effort.spent("plans simulated", 1):
            simulated = context.timelines.simulate_up_to(plan, target)
        if isinstance(simulated, Plan) and step(simulated) < target:
            incumbent.keep(simulated)
            incumbent.report("trying stages of unlike degrees")


def unlike_seconds(incumbent: Incumbent) -> Seconds:
    """Seconds of the time limit that the proof leaves for `try_unlike`."""
    if incumbent.context.every_step or not may_differ(incumbent.request):
        return 0.0
    return min(incumbent.budgets.unlike_s, incumbent.budgets.unlike_share * incumbent.request.time_limit)


def _fastest(incumbent: Incumbent, shapes: Sequence[Shape]) -> list[Priced]:
    """The plans of the layouts with the least estimates, the fastest first, after moves of layers."""
    budgets, context, near = incumbent.budgets, incumbent.context, incumbent.target * (1 + incumbent.budgets.unlike_near)
    orders = _Orders(context)
    rough = (one for one in _layouts(context, shapes, near) if any(orders.of(one[1])))
    closer: list[tuple[Seconds, Layout, tuple[int, ...]]] = []
    for _, layout in heapq.nsmallest(budgets.unlike_layouts, rough, key=lambda pair: pair[0]):
        for order in orders.of(layout):
            assigned = _assigned(context, order)
            if assigned is not None and assigned[0] < near:
                closer.append((assigned[0], order, assigned[1]))
    found, in_vain = list[Priced](), 0
    for _, order, layers in heapq.nsmallest(budgets.unlike_layouts, closer, key=lambda one: one[0]):
        if in_vain == budgets.unlike_plans:
            break
        if (priced := _priced(incumbent, order, layers)) is not None:
            in_vain = 0 if priced[0] < incumbent.target else in_vain + 1
            if priced[0] < near:
                found.append(priced)
    left = [budgets.unlike_moves]
    fastest = sorted(found, key=lambda one: one[0])[: budgets.unlike_tries]
    return sorted((_moved(incumbent, one, left) for one in fastest), key=lambda one: one[0])


def _layouts(context: PlanningContext, shapes: Sequence[Shape], most: Seconds) -> Iterator[tuple[Seconds, Layout]]:
    """(estimate, layout) for all samples of microbatches and all runs on two clusters or more that are not all alike.

    None that take `most` seconds even if the first microbatch passes all layers on the fastest devices."""
    request, layers = context.request, context.request.workload.model.layers
    batch, pinned = request.workload.global_batch_size, request.wishes.pp
    divisors = (number for number in range(1, batch + 1) if batch % number == 0)
    for samples, alike in itertools.product(divisors, matching(request, shapes)):
        if context.limit.is_up():
            return
        runs = _runs(context, alike, samples)
        for some in _joined(request, runs):
            if (batch // samples - 1) * layers >= most * sum(max(run.rate for run in each) for each in some):
                continue
            for layout in itertools.product(*some):
                stages = sum(run.stages for run in layout)
                if stages > layers or pinned not in (None, stages) or sum(run.capacity for run in layout) < layers:
                    continue
                if are_unlike(run.option.own for run in layout):
                    rate, fill = sum(run.rate for run in layout), min(run.fill for run in layout)
                    rest, first = (batch // samples - 1) * layers / rate, fill * layers / max(r.rate / r.stages for r in layout)
                    if rest + first < most:
                        yield rest + fill * stages * layers / rate, layout


def _joined(request: Request, runs: dict[str, list[Run]]) -> Iterator[tuple[list[Run], ...]]:
    """The runs of each cluster, for every set of two clusters or more that a plan may have devices of."""
    for clusters in request.joinable():
        found = [runs[cluster.name] for cluster in clusters if runs.get(cluster.name)]
        for size in range(2, len(found) + 1):
            yield from itertools.combinations(found, size)


def _runs(context: PlanningContext, shapes: Sequence[Shape], samples: int) -> dict[str, list[Run]]:
    """The runs on each cluster, without those that others beat in stages, speed and layers that fit."""
    found: dict[str, list[Run]] = {}
    for own in (own for shape in shapes for own in own_shapes(context.request, shape, samples)):
        for option in node_classes(context, own):
            joined = min(on_shared_hosts((option.cluster, own)), option.max_stages)
            numbers = dict.fromkeys((option.max_stages, option.max_stages // 2, joined, 1))
            runs = (Run.of(option, stages) for stages in numbers if 0 < stages <= context.request.workload.model.layers)
            found.setdefault(option.cluster.name, []).extend(run for run in runs if run.capacity)
    return {name: _undominated(runs) for name, runs in found.items()}


def _undominated(runs: list[Run]) -> list[Run]:
    kept: list[Run] = []
    for run in sorted(runs, key=lambda one: (-one.rate, one.stages, -one.capacity)):
        if not any(one.stages <= run.stages and one.capacity >= run.capacity for one in kept):
            kept.append(run)
    return kept


def _assigned(context: PlanningContext, layout: Layout) -> tuple[Seconds, tuple[int, ...]] | None:
    """(estimated seconds of a step, layers of each stage) by list scheduling; None where memory is too small."""
    options = [run.option for run in layout for _ in range(run.stages)]
    pp, m, shape = len(options), options[0].microbatches, options[0].own
    if not shape.is_defined(m, pp):
        return None
    seconds, most = [], []
    for stage, (option, role) in enumerate(zip(options, roles(pp), strict=True)):
        one, two = (option.with_messages(role, layers, 0.0, 0.0).cycle for layers in (1, 2))
        seconds.append((2 * one - two, two - one))
        held = schedules.in_flight(shape.schedule, stage, pp, m, 1)
        most.append(option.memory.most_layers(role, held, pp))
    layers = minmax_layers(seconds, most, context.request.workload.model.layers, 1)
    if layers is None:
        return None
    costs = [option.cost(role, count) for option, role, count in zip(options, roles(pp), layers, strict=True)]
    tail = max(cost.tail(option.without_virtual_stages) for cost, option in zip(costs, options, strict=True))
    fill = sum(2 * cost.forward if option.splits else cost.both for cost, option in zip(costs, options, strict=True))
    return (m - 1) * max(cost.cycle for cost in costs) + fill + tail, layers


def _priced(incumbent: Incumbent, layout: Layout, layers: tuple[int, ...]) -> Priced | None:
    """The plan of a layout with its seconds on an idle network; None where it is not allowed or does not fit."""
    if incumbent.limit.is_up():
        return None
    options = [run.option for run in layout for _ in range(run.stages)]
    stages = [(option.cluster.name, option.own, count) for option, count in zip(options, layers, strict=True)]
    with suppress(PlanError, NoRoute):
        plan = build_unlike(incumbent.request, stages, "certified")
        pinned = incumbent.request.wishes.microbatch_size
        if pinned in (None, plan.config.microbatch_size) and fits(plan):
            return float(evaluate([plan])[0]), layout, layers, plan
    return None


def _moved(incumbent: Incumbent, best: Priced, left: list[int]) -> Priced:
    """The plan after the best move of a layer over one border has been made as long as it helps; `left`: plans to price."""
    while True:
        near = list(_neighbours(best[2]))
        left[0] -= len(near)
        priced = (_priced(incumbent, best[1], layers) for layers in near) if left[0] >= 0 else ()
        fastest = min(filter(None, priced), key=lambda one: one[0], default=best)
        if fastest[0] >= best[0]:
            return best
        best = fastest


def _neighbours(layers: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Layers of each stage after a move of one layer over one border."""
    for a, b in itertools.pairwise(range(len(layers))):
        for giver, taker in ((a, b), (b, a)):
            if layers[giver] > 1:
                yield tuple(count + (stage == taker) - (stage == giver) for stage, count in enumerate(layers))
