"""certified: drafts of every shape under every schedule, the best of them played, and a certificate of how far the plan can
be from the best.

First a plan, soon: all variants of all shapes are put in the order of a quick estimate, the first are sketched, the best of
these drafted (`planner.drafts`), the best drafts are played by the engine; what the engine says is the plan's promise. Plans
with mixed stages (`planner.mixed`) are tried besides. Then the proof, which finds plans too. Shapes, the least bound first,
pass ever closer questions: a quick bound under any schedule and under each (`planner.bounds`); how far pipelines reach in the
time of the best plan (`planner.reach`); and where that leaves a doubt, all pipelines that are not ruled out are priced by the
evaluator, a few thousand at once, and the best guesses among them are played. Where they are too many, or the evaluator does
not hold the shape, the stage model (`planner.stages`) is solved.

The least bound of all is the certificate: of pipelines of whole stages, each on one cluster, on an idle network, that fill one
node after the other; those of one place may lie evenly on their nodes too. Every pipeline that is played was priced both ways
(`planner.placement`). Plans with mixed stages have a bound of their own (`planner.mixedreach`). The work is counted in
sketches, pipelines, programmes and simulations, not in seconds, so that the same question has the same answer on any machine;
the time limit is a safety beyond that."""

from __future__ import annotations

import functools
import heapq
import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from planner.bounds import quick_bound, quick_estimate, relaxed_bound
from planner.classes import ClassOption, options
from planner.cures import why_none
from planner.drafts import Draft, Sketch, priced, sketches
from planner.fitting import fitting
from planner.mixed import is_mixed, layouts, mixed, work_bound
from planner.mixedreach import mixed_bound
from planner.placement import build
from planner.question import Question
from planner.reach import CLASSES, Reach, reach_bound, reaches
from planner.shapes import Shape, overlaps, searched, splitting, uneven, variants
from planner.space import axes, outside
from planner.stages import EVERY_ORDER, Assignment, alone, orders, solve
from planner.strategies import get
from planner.verify import fits, play, step
from planner.workshop import Workshop
from sim import schedules
from sim.costs import step_seconds
from sim.errors import Infeasible, PlanError
from sim.evaluator import evaluate
from sim.plan import Certificate, MadeBy, Plan

BASES = 24
"""Shapes that are looked at under every schedule for a first plan, the best estimates first."""
SKETCHED = 12
"""Of their variants, those that are sketched."""
DRAFTED = 4
"""Sketches that are drafted."""
BETTERED = 2
"""Of these, drafts that are bettered; and those that are played without finding a faster plan."""
MIXED_PLAYS = 4
"""Plans with mixed stages that are played without finding a faster one."""
VARIABLES = 12_000
"""Stage programmes are solved until they have had so many variables in all."""
NEAR = 0.005
"""No programme is solved for the proof that less than this share could be gained."""
FEW = 1_000
"""Pipelines of a variant in one order of its classes that are priced at once, all that might be faster than the best plan."""
MOST = 20_000
"""Those that are priced at once otherwise, all that might take little more than the bound; of more the stage model gives it."""
CLOSER = 0.02
"""All pipelines that might take no more than the bound and this share of it are priced together."""
PRICED = 150_000
"""Pipelines that are priced for the proof, in all."""
FOLLOWING = 3
"""Plans that are built or played after the search: those of two other strategies, and the best one for the report."""
KEPT = 4
"""Of those, pipelines that may be played."""
SOLVED_PLAYS = 4
"""Solutions of stage programmes that are played, one after the other, without finding a faster plan."""
LATE_PLAYS = 4
"""Those of them where the time is up; none where one takes long."""
LONG = 1.0
"""Seconds of building and playing a plan that are long."""
LATE = 30.0
"""Seconds by which a search may be late and still ask other strategies for their plans."""
MIXED_PROOF = 3.0
"""Seconds that the bound of plans with mixed stages has in any case; then a simpler one has to do."""
LAST_PLAYS = 20
"""Of all that might be faster than the best plan, those that are played in the end without finding a faster one."""
OPTIMAL_GAP = 1e-3
"""A plan is called optimal where no plan of the searched space can be faster by more than this share."""


@dataclass(slots=True)
class _Search:
    """What is known so far: the best played plan, and bounds of all shapes."""

    question: Question
    workshop: Workshop
    deadline: float
    best: Plan | None = None
    bounds: list[float] = field(default_factory=list)
    solvers: dict[str, None] = field(default_factory=dict)
    seen: set[tuple[Shape, tuple[tuple[str, int], ...]]] = field(default_factory=set)
    pool: list[Draft] = field(default_factory=list)
    programmes: int = 0
    vain: int = 0
    priced: int = 0
    longest: float = 0.0

    @property
    def cutoff(self) -> float:
        return step(self.best) if self.best is not None else float("inf")

    @property
    def target(self) -> float:
        """What a step must be below, to be worth looking for."""
        return self.cutoff * (1 - NEAR)

    @property
    def left(self) -> float:
        return self.deadline - time.monotonic()

    def tell(self, doing: str) -> None:
        """Where the search stands, for people who wait."""
        best = f"best step {step(self.best):.4g} s" if self.best is not None else "no plan yet"
        self.workshop.progress(f"{doing}, {best}")

    def offer(self, shape: Shape, stages: tuple[tuple[str, int], ...]) -> bool:
        """Play a pipeline, if it can be built and fits, and keep it if it is the fastest so far."""
        if (shape, stages) in self.seen:
            return False
        self.seen.add((shape, stages))
        begun = time.monotonic()
        plan = self.laid(shape, stages)
        if plan is None:
            return False
        better = self.keep(play(plan))
        self.spare(time.monotonic() - begun)
        return better

    def laid(self, shape: Shape, stages: tuple[tuple[str, int], ...]) -> Plan | None:
        """The plan of a pipeline, its nodes filled one after the other or evenly, whichever is faster on an idle network.

        None where it cannot be built, does not fit or is not faster than the best."""
        counts = Counter(name for name, _ in stages)
        clusters = self.question.topology.fleet.cluster
        found: list[Plan] = []
        for evenly in (False, True) if any(uneven(clusters(name), shape, n) for name, n in counts.items()) else (False,):
            with suppress(PlanError):
                found += filter(fits, [build(self.question, shape, stages, "certified", evenly)])
        try:
            seconds, _, plan = min(zip(evaluate(found), itertools.count(), found, strict=False), default=(math.inf, 0, None))
        except PlanError:  # what the evaluator does not hold is played in any case
            return min(found, key=step_seconds)
        return plan if seconds < self.cutoff else None

    def spare(self, seconds: float) -> None:
        """Leave time for what follows the search, where playing a plan takes long: other strategies play theirs."""
        if seconds > max(self.longest, LONG):
            most = self.question.time_limit / FOLLOWING
            self.deadline -= min(FOLLOWING * seconds, most) - min(FOLLOWING * self.longest, most)
            self.longest = seconds

    def keep(self, played: Plan) -> bool:
        """Keep a played plan if it is the fastest so far."""
        self.workshop.played.append(played)
        better = step(played) < self.cutoff
        if better:
            self.best = played
        return better


def plan(question: Question, workshop: Workshop) -> Plan:
    """The fastest plan found, with its certificate. Raises Infeasible where no plan fits."""
    search = _Search(question, workshop, time.monotonic() + question.time_limit)
    bases = list(searched(question))
    open_bounds, mixed_least = [0.0], None
    try:
        _find(search, bases)
        if not question.machines:  # on part of the fleet a plan is wanted, not a proof
            open_bounds = _prove(search, bases)
            if -LATE < search.left <= 0:
                _ask_others(search)
            mixed_least = _mixed_least(search)
    except KeyboardInterrupt:  # the best plan so far, with its gap, is an answer
        if search.best is None:
            raise
        workshop.interrupted = True
        open_bounds = [relaxed_bound(question, workshop)]
    return _answer(search, open_bounds, mixed_least)


def _ask_others(search: _Search) -> None:
    """Where time ran out, plans of others that are quickly had: a hasty answer is not worse than theirs."""
    for name in ("holmes", "megatron"):
        with suppress(Infeasible):
            think = functools.partial(get(name).plan, search.question, search.workshop)
            search.keep(search.workshop.answer(name, think))


def _find(search: _Search, bases: list[Shape]) -> None:
    """Estimate, sketch, draft and play."""
    of = {splitting(base): base for base in bases}
    promising = _ranked(search, of, BASES, tails=False)
    _draft(search, _ranked(search, (v for shape in promising for v in variants(search.question, of[shape])), SKETCHED))
    idle = 0
    for seconds, plan in mixed(search.workshop, "certified", search.cutoff, search.deadline) if search.left > 0 else ():
        if seconds >= search.cutoff or idle >= MIXED_PLAYS or search.left <= 0:
            break
        idle = 0 if search.keep(play(plan)) else idle + 1
        search.tell("playing mixed stages")


def _draft(search: _Search, found: Iterable[Shape]) -> None:
    """Sketch shapes, draft the best sketches, play the best drafts."""
    sketched: list[Sketch] = []
    for shape in found:
        if search.left <= 0 and sketched:
            break
        sketched += sketches(search.workshop, shape, options(search.workshop, shape))[:3]
    sketched.sort(key=lambda sketch: sketch.seconds)
    search.tell(f"{len(sketched)} sketches")
    drafted = sorted((sketch.drafted() for sketch in sketched[:DRAFTED]), key=lambda draft: draft.guess)
    drafted[:BETTERED] = [draft.bettered() for draft in drafted[:BETTERED]]
    idle = 0
    for draft in sorted(drafted, key=lambda draft: draft.guess):
        if draft.seconds >= search.cutoff:
            continue
        if idle >= BETTERED or (search.left <= 0 and search.best is not None):
            break
        better = [search.offer(shape, draft.stages) for shape in overlaps(draft.shape)]
        idle = 0 if any(better) else idle + 1
        search.tell("playing drafts")


def _ranked(search: _Search, found: Iterable[Shape], most: int, tails: bool = True) -> list[Shape]:
    """The first shapes in the order of a quick estimate, so many at most, without those that do not fit.

    A shape waits with an estimate that leaves out messages, and is never above the other, until it is the first by that."""
    workshop, heap = search.workshop, list[tuple[float, int, Shape, bool]]()
    for shape in found:
        if search.left <= 0 and heap:
            break
        least = quick_estimate(workshop, shape, options(workshop, shape), False, False)
        if least < math.inf:
            heap.append((least, len(heap), shape, False))
    heapq.heapify(heap)
    ranked: list[Shape] = []
    while heap and len(ranked) < most:
        _, index, shape, known = heapq.heappop(heap)
        if known or search.left <= 0:
            ranked.append(shape)
        else:
            estimate = quick_estimate(workshop, shape, options(workshop, shape), tails)
            heapq.heappush(heap, (estimate, index, shape, True))
    return ranked


def _prove(search: _Search, bases: list[Shape]) -> list[float]:
    """Bounds of all that was not solved; what was is in `search.bounds`. Better plans that are found on the way are played."""
    workshop, numbers = search.workshop, itertools.count()
    heap: list[tuple[float, int, Shape, tuple[Reach, ...] | None]] = []

    def claim(bound: float, shape: Shape, orders: tuple[Reach, ...] | None = None) -> None:
        heapq.heappush(heap, (bound, next(numbers), shape, orders))

    for base in bases:
        claim(quick_bound(workshop, base, options(workshop, base), True), base)
    opened: set[Shape] = set()
    while heap and heap[0][0] < search.target and search.left > 0 and search.priced < PRICED:
        bound, _, shape, orders = heapq.heappop(heap)
        if orders is not None:
            closer, settled = _closer(search, shape, orders, bound)
            if settled or closer >= search.target:
                search.bounds.append(closer)
            else:
                claim(closer, shape, orders)
            search.tell(f"{len(search.bounds)} layouts settled")
        elif shape in opened:
            for one in overlaps(shape):
                reaching = _reaching(search, one, bound)
                if reaching[0] < search.target:
                    claim(*reaching)
                else:
                    search.bounds.append(search.target)
        else:
            for variant in variants(search.question, shape):
                opened.add(variant)
                claim(max(bound, quick_bound(workshop, variant, options(workshop, variant))), variant)
    _play(search, lambda draft: True, LAST_PLAYS)
    return [bound for bound, *_ in heap]


def _reaching(search: _Search, shape: Shape, bound: float) -> tuple[float, Shape, tuple[Reach, ...]]:
    """A variant, with a bound of its pipelines (`planner.reach`), and the orders of its classes that are not ruled out."""
    classes = options(search.workshop, shape)
    if search.question.wishes.pp in (None, 1):
        search.bounds += [_single(search, shape, option) for option in classes]
    orders = reaches(search.workshop, classes, search.target)
    return reach_bound(orders, bound, search.target), shape, tuple(orders)


def _single(search: _Search, shape: Shape, option: ClassOption) -> float:
    """The least that a pipeline of one place takes, which is played if it might be the fastest; infinite where it does not."""
    layers = option.workload.model.layers
    least = option.microbatches * layers * option.layer_seconds
    if least >= search.cutoff:
        return least
    try:
        held = option.room("only", schedules.in_flight(shape.schedule, 0, 1, shape.enough(option.microbatches, 1), shape.vpp))
        drafts = [priced(search.workshop, shape, (way,), [((0, layers),)], 1)[0] for way in option.alone if held >= layers]
        seconds = min((draft.seconds for draft in drafts), default=math.inf)
    except PlanError:  # what the evaluator does not hold
        singles = filter(None, (alone(way, search.cutoff) for way in option.alone))
        seconds = min((single.seconds for single in singles), default=math.inf)
    if seconds < search.cutoff:
        search.offer(shape, ((option.cluster.name, layers),))
    return seconds


def _closer(search: _Search, shape: Shape, orders: tuple[Reach, ...], bound: float) -> tuple[float, bool]:
    """A closer bound of pipelines that are not ruled out, and whether there is no closer one.

    The evaluator prices all that might take little more than the bound; where they are too many, the stage model is solved.
    """
    for seconds, most in ((search.target, FEW), (min(search.target, bound * (1 + CLOSER)), MOST)):
        rows = [order.pipelines(seconds, most) for order in orders]
        if all(found is not None for found in rows):
            break
    search.priced += sum(map(len, filter(None, rows)))
    found: list[Draft] = []
    try:
        for order, some in zip(orders, rows, strict=True):
            if some is None:
                raise PlanError("too many")
            found += priced(search.workshop, shape, order.order, some, KEPT)
    except PlanError:
        return _solved(search, shape, bound), True
    search.pool += [draft for draft in found if draft.seconds < search.cutoff]
    _play(search, lambda draft: draft.guess < search.cutoff, 1)
    if not all(order.exact for order in orders):
        return _solved(search, shape, bound), True
    least = min((draft.seconds for draft in found), default=math.inf)
    return min(least, seconds), least <= seconds


def _play(search: _Search, worth: Callable[[Draft], bool], plays: int) -> None:
    """Play drafts of the pool, the best guesses first, until so many were not faster than the best plan."""
    idle = 0
    search.pool.sort(key=lambda draft: draft.guess)
    late = LATE_PLAYS if search.longest < LONG else 0
    while search.pool and idle < (plays if search.left > 0 else min(plays, late)) and worth(search.pool[0]):
        draft = search.pool.pop(0)
        if draft.seconds < search.cutoff:
            idle = 0 if search.offer(draft.shape, draft.stages) else idle + 1


def _solved(search: _Search, shape: Shape, bound: float) -> float:
    """The bound after the stage model was solved; it is no closer where that looks at fewer orders than the bound does."""
    classes = options(search.workshop, shape)
    solved = _solve(search, shape, classes)
    return bound if EVERY_ORDER < len(classes) <= CLASSES else max(bound, solved)


def _solve(search: _Search, shape: Shape, classes: list[ClassOption]) -> float:
    """The bound of a variant over all orders of its classes; assignments found are played."""
    bound, pp = search.cutoff, search.question.wishes.pp
    for assignment in _assignments(search, shape, classes, pp):
        if isinstance(assignment, float):
            bound = min(bound, assignment)
            continue
        bound = min(bound, assignment.bound)
        search.solvers[assignment.solver] = None
        if search.vain < SOLVED_PLAYS:
            search.vain = 0 if search.offer(shape, assignment.stages) else search.vain + 1
    return bound


def _assignments(search: _Search, shape: Shape, classes: list[ClassOption], pp: int | None) -> Iterator[Assignment | float]:
    """What the stage model says, order by order; a bound alone where it ran out of time."""
    if pp in (None, 1):
        yield from filter(None, (alone(way, search.cutoff) for option in classes for way in option.alone))
    for order in orders(search.workshop, classes) if pp != 1 else []:
        search.programmes += 1
        try:
            found = solve(search.workshop, order, pp, search.cutoff, search.left)
        except TimeoutError:
            yield quick_bound(search.workshop, shape, classes)
            continue
        if found is not None:
            yield found


def _answer(search: _Search, open_bounds: list[float], mixed_least: float | None) -> Plan:
    if search.best is None:
        search.best = _any_plan(search)
    objective = step(search.best)
    bound = min([objective, *search.bounds, *open_bounds])
    if is_mixed(search.best):
        mixed_least = work_bound(search.workshop) if mixed_least is None else mixed_least
        bound = min(bound, mixed_least)
    gap = 1 - bound / objective
    certificate = Certificate(
        status="optimal" if gap <= OPTIMAL_GAP else "feasible",
        objective_s=objective,
        lower_bound_s=bound,
        gap=gap,
        solver="+".join(sorted(search.solvers)) or "closed form",
        seconds=search.question.time_limit,
        mixed_lower_bound_s=mixed_least,
        space=axes(search.question),
        outside=outside(search.question),
    )
    return search.best.saying(certificate=certificate, made_by=MadeBy("certified", search.best.made_by.version))


def _mixed_least(search: _Search) -> float | None:
    """A lower bound on plans with mixed stages, at most the best step; None where there are none, or no plan yet."""
    question, workshop = search.question, search.workshop
    if search.best is None or len(list(question.clusters())) < 2:
        return None
    found = mixed_bound(workshop, layouts(question), search.cutoff, max(search.deadline, time.monotonic() + MIXED_PROOF))
    return work_bound(workshop) if found is None else found


def _any_plan(search: _Search) -> Plan:
    """Some plan that fits, where none was found in time. Raises Infeasible, which says which demand fails."""
    found = fitting(search.question, "certified")
    if found is None:
        raise Infeasible(why_none(search.question))
    return play(found)
