"""certified: the stage ILP over every shape, best bound first, and a certificate of how far the plan can be from the best.

Every shape has a quick lower bound, then that of its stage model (`planner.stages`), then the closed form of its plan. The
most promising is looked at next: shapes are solved, plans are built, the best are played by the engine. What the engine says
is the plan's promise; the least bound over all shapes is the certificate. Plans of holmes and megatron are played first, so
that the answer is never worse than theirs. The work is counted in programmes and simulations, not in seconds, so that the
same question has the same answer on any machine; the time limit is a safety beyond that."""

from __future__ import annotations

import contextlib
import functools
import heapq
import itertools
import math
import time
from dataclasses import dataclass, field, replace

from planner.bounds import quick_bound, quick_estimate
from planner.classes import ClassOption, options
from planner.placement import build
from planner.question import Question
from planner.shapes import Shape, shapes
from planner.stages import Assignment, alone, orders, solve
from planner.strategies import get
from planner.verify import fits, play, step
from planner.workshop import Workshop
from sim import costs
from sim.errors import Infeasible, PlanError
from sim.plan import Certificate, MadeBy, Plan
from sim.units import size_text

FIRST = 12
"""So many shapes are solved first, by a quick estimate: good plans early prune the rest."""
VARIABLES = 45_000
PLAYS = 12
"""Programmes are solved until they have had so many variables in all; so many plans are played without finding a faster one."""


DIVE = 0.97
"""What promises to be faster than the best plan by this factor is not kept waiting."""
OPTIMAL_GAP = 1e-3
"""A plan is called optimal where no plan of the searched space can be faster by more than this share."""


@dataclass(slots=True)
class _Search:
    """What is known so far: the best played plan, bounds of all shapes, and what to look at next."""

    question: Question
    workshop: Workshop
    deadline: float
    best: Plan | None = None
    bounds: list[float] = field(default_factory=list)
    solvers: dict[str, None] = field(default_factory=dict)
    programmes: int = 0
    idle_plays: int = 0
    heap: list[tuple[float, int, object]] = field(default_factory=list)
    order: itertools.count[int] = field(default_factory=itertools.count)

    @property
    def cutoff(self) -> float:
        return step(self.best) if self.best is not None else float("inf")

    @property
    def left(self) -> float:
        return self.deadline - time.monotonic()

    def push(self, bound: float, item: object) -> None:
        if bound < self.cutoff:
            heapq.heappush(self.heap, (bound, next(self.order), item))

    def state(self) -> str:
        """Where the search stands, for people who wait."""
        best = f"best step {step(self.best):.4g} s" if self.best is not None else "no plan yet"
        bound = f", bound {self.heap[0][0]:.4g} s" if self.heap else ""
        return f"{self.programmes} stage programmes solved, {best}{bound}"

    def offer(self, played: Plan) -> bool:
        """Keep a played plan if it is the fastest."""
        better = step(played) < self.cutoff
        if better:
            self.best = played
        return better


def plan(question: Question, workshop: Workshop) -> Plan:
    """The fastest plan found, with its certificate. Raises Infeasible where no plan fits."""
    search = _Search(question, workshop, time.monotonic() + question.time_limit)
    for name in ("holmes", "megatron"):
        with contextlib.suppress(Infeasible):
            search.offer(workshop.answer(name, functools.partial(get(name).plan, question, workshop)))
    everything = [(shape, options(workshop, shape)) for shape in shapes(question)]
    everything.sort(key=lambda item: quick_estimate(workshop, *item))
    for place, item in enumerate(everything):
        bound = quick_bound(workshop, *item)
        if place < FIRST and bound < search.cutoff and search.left > 0:
            search.bounds.append(_solve(search, *item))
            workshop.progress(search.state())
        else:
            search.push(bound, item)
    while search.heap and search.heap[0][0] < search.cutoff and search.left > 0 and search.idle_plays < PLAYS:
        entry = heapq.heappop(search.heap)
        try:
            _look(search, entry[2])
        except KeyboardInterrupt:  # the best plan so far, with its gap, is an answer
            heapq.heappush(search.heap, entry)
            workshop.interrupted = True
            break
        workshop.progress(search.state())
    return _answer(search)


def _look(search: _Search, item: object) -> None:
    """Look closer at the most promising thing: play a plan, build an assignment, or solve a shape."""
    if isinstance(item, Plan):
        better = search.offer(play(item))
        search.idle_plays = 0 if better else search.idle_plays + 1
    else:
        _expand(search, item)


def _expand(search: _Search, item: object) -> None:
    """Solve a shape, or turn an assignment into a plan; a plan far better than the best is played at once, to prune by it."""
    assert isinstance(item, tuple)
    if isinstance(item[1], Assignment):
        shape, assignment = item
        try:
            plan = build(search.question, shape, assignment.stages, "certified")
        except PlanError:
            return
        if not fits(plan):
            return
        seconds = max(assignment.seconds, costs.step_seconds(plan))
        if seconds < DIVE * search.cutoff:
            search.offer(play(plan))
        else:
            search.push(seconds, plan)
        return
    shape, classes = item
    if search.workshop.variables >= VARIABLES:
        search.bounds.append(quick_bound(search.workshop, shape, classes))
        return
    search.bounds.append(_solve(search, shape, classes))


def _solve(search: _Search, shape: Shape, classes: list[ClassOption]) -> float:
    """The bound of a shape over all orders of its classes; assignments found go on to be plans."""
    bound, pp = search.cutoff, search.question.wishes.pp
    found: list[Assignment | None] = []
    if pp in (None, 1):
        found += [alone(option, search.cutoff) for option in classes]
    if pp != 1:
        for order in orders(search.workshop, classes):
            search.programmes += 1
            try:
                found.append(solve(search.workshop, order, pp, search.cutoff, search.left))
            except TimeoutError:
                bound = min(bound, quick_bound(search.workshop, shape, classes))
    for assignment in found:
        if assignment is not None:
            bound = min(bound, assignment.bound)
            search.solvers[assignment.solver] = None
            if assignment.seconds < DIVE * search.cutoff:
                _expand(search, (shape, assignment))
            else:
                search.push(assignment.seconds, (shape, assignment))
    return bound


def _answer(search: _Search) -> Plan:
    if search.best is None:
        raise Infeasible(_why_none(search))
    objective = step(search.best)
    open_bounds = [bound for bound, _, item in search.heap if isinstance(item, tuple) and not isinstance(item[1], Assignment)]
    bound = min([objective, *search.bounds, *open_bounds])
    gap = 1 - bound / objective
    certificate = Certificate(
        status="optimal" if gap <= OPTIMAL_GAP else "feasible",
        objective_s=objective,
        lower_bound_s=bound,
        gap=gap,
        solver="+".join(sorted(search.solvers)) or "closed form",
        seconds=search.question.time_limit,
    )
    return replace(search.best, certificate=certificate, made_by=MadeBy("certified", search.best.made_by.version))


def _why_none(search: _Search) -> str:
    """Which demand fails by how much, for the layout that comes nearest, and what would cure it."""
    question, nearest = search.question, None
    pp, layers = question.wishes.pp, question.workload.model.layers
    longest = max(sum(c.capacity for c in options(search.workshop, shape)) for shape in shapes(question))
    if pp and pp * (question.wishes.vpp or 1) > layers:
        wished = f"pp {pp}" + (f" x vpp {question.wishes.vpp}" if question.wishes.vpp else "")
        return f"{wished} needs a layer for each stage; {question.workload.model.name} has {layers}; lower pp"
    if pp and pp > longest:
        return f"pp {pp} does not fit {question.topology.name}: its devices hold at most {longest} stages; lower pp, tp or dp"
    for shape in shapes(question):
        for option in options(search.workshop, shape):
            capacity = sum(other.capacity for other in options(search.workshop, shape))
            layers = math.ceil(question.workload.model.layers / min(capacity, question.wishes.pp or capacity))
            over = option.bytes_at("middle", layers) - option.cluster.node.device.memory
            if nearest is None or over < nearest[0]:
                nearest = (over, shape, option, layers)
    if nearest is None:
        return f"no cluster of {question.topology.name} holds one stage; lower dp or tp"
    over, shape, option, layers = nearest
    if search.left <= 0:
        return f"no plan found within {question.time_limit:g} s; give --time-limit more"
    if over <= 0:
        return (
            f"no layout fits {str(question.wishes) or 'the workload'}: a pipeline needs a layer for each of its pp x vpp "
            f"stages, and interleaved stages a multiple of pp microbatches"
        )
    device = option.cluster.node.device
    needed = size_text(option.bytes_at("middle", layers))
    text = (
        f"memory: {question.workload.model.name} does not fit {question.topology.name}. The nearest layout (tp {shape.tp}, "
        f"dp {shape.dp}, microbatch size {shape.microbatch_size}, recompute {shape.recompute}) puts {layers} layers on a stage "
        f"and needs {needed} of device {device.name} with {size_text(device.memory)}, {size_text(max(over, 0.0))} too much"
    )
    fitting = option.layers("middle", math.inf)
    if fitting:
        stages = math.ceil(question.workload.model.layers / fitting[-1]) + 1
        short = max(stages - option.capacity, 1) * shape.slots * shape.tp
        nodes = math.ceil(short / option.cluster.node.count)
        return f"{text}. {nodes} more nodes in cluster {option.cluster.name} would cure it, or unpin what is pinned"
    return f"{text}. Devices with more memory, or a larger tp, would cure it"
