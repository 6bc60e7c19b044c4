"""certified: candidates of every shape under every schedule, the best of them simulated, and a certificate of how far the plan
can be from the best.

First a plan, soon: variants of the shapes with usual microbatch sizes are put in the order of a quick estimate, the first are
estimated, the best of these evaluated and improved (`planner.search.candidates`), and candidates are simulated in the order of
what is expected of them (`planner.search.pool`); what the engine says is the plan's promise. Plans with mixed stages
(`planner.search.mixed`) are tried, too.

Then the proof, which finds plans too. Entries of a heap, the least bound first, pass ever closer tests: a quick bound
(`planner.bounds.relaxation`); the deadline test (`planner.bounds.deadline`) of a shape under all schedules and ZeRO stages
together, then under all ZeRO stages, then of each variant; and where that leaves a doubt, the evaluator prices all pipelines
that are not ruled out, a few thousand at once. Where pipelines are too many the bound of the deadline test stays. From then on
variants whose bound is not lower are only looked at for a faster plan: by their own candidates, and by the stage model
(`planner.models.stages`).

The least bound of all is the certificate: of pipelines of whole stages, each on one cluster, on an idle network, that fill one
node after the other; those of one stage may lie evenly on their nodes too. `planner.search.searched_space` names the space.
Plans with mixed stages have a bound of their own (`planner.bounds.mixed_deadline`). The work is counted in estimates,
pipelines, programmes and simulations, not in seconds, so that the same request has the same answer on any machine; the time
limit is a safety beyond that."""

from __future__ import annotations

import functools
import heapq
import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from planner.bounds.deadline import AnyOrder, DeadlineTest, Orders, deadline_bound, deadline_tests, orders_within
from planner.bounds.mixed_deadline import mixed_bound
from planner.bounds.quick_estimate import quick_estimate
from planner.bounds.relaxation import quick_bound, relaxed_bound
from planner.bounds.shape_families import AnyChunks, AnySchedule, AnyZeroStage
from planner.bounds.total_work import work_bound
from planner.costs.context import PlanningContext
from planner.costs.node_classes import NodeClass, node_classes, under
from planner.diagnosis.remedies import why_none
from planner.models.class_orders import orders
from planner.models.stages import solve
from planner.placement.ranks import build
from planner.placement.simulation import fits, simulate_plan, step
from planner.request import Request
from planner.search.candidates import Candidate, Estimate, Row, estimates, priced, too_large
from planner.search.fitting import fitting
from planner.search.mixed import is_mixed, layouts, mixed
from planner.search.pool import Pool
from planner.search.searched_space import axes, outside
from planner.space.shapes import USUAL_SIZES, Shape, overlaps, searched, splitting, uneven, variants, zero_stages
from planner.strategies import get
from sim.analytic.evaluator import evaluate
from sim.analytic.plan_costs import step_seconds
from sim.errors import Infeasible, NotModelled, PlanError
from sim.plan import schedules
from sim.plan.certificate import Certificate
from sim.plan.plan import MadeBy, Plan

BASES = 24
"""Shapes considered for the first plan, under every schedule, in the order of a quick estimate."""
FIRST_CHUNKS = 4
"""Largest vpp of the first plan: larger ones take longer to simulate (a guess)."""
ESTIMATED = 32
"""Variants of these shapes of which pipelines are estimated."""
EVALUATED = 32
"""Sketches that are priced by the evaluator."""
ROUGH = 0.02
"""An estimate that is above the fastest candidate by more than this fraction is not priced (a guess)."""
IMPROVED = 6
"""Fastest candidates whose layers are moved for a faster step."""
FIRST_TRIES = 6
"""Simulations in a row without improvement after which the first plan stands."""
CONTENTION = 0.5
"""Contention expected of a kind of candidate of which none was simulated, as a fraction of its busiest link's message time (a
guess). The best candidate of a variant is simulated at once where its estimate with this contention is below the best step."""
MIXED_TRIES = 4
"""Simulations of plans with mixed stages in a row without improvement after which no more are tried."""
NEAR = 0.005
"""The search ends where no plan of the space can be faster than the best one by more than this fraction."""
FEW = 1_000
"""Most pipelines of a variant, in one order of its classes, that are priced where they are all that might be the fastest."""
MOST = 20_000
"""Most pipelines of a variant, in one order of its classes, that are priced where they are all a little above its bound."""
CLOSER = 0.02
"""First step of a variant's bound, as a fraction of it; doubled while fewer than `FEW` pipelines lie between."""
PRICED = 400_000
"""Pipelines priced for the proof, in all."""
KEPT = 4
"""Fastest pipelines of each priced list that may be simulated."""
FOLLOWING = 3
"""Plans that are built or simulated after the search: those of two other strategies, and the best one for the report."""
SOLVED_TRIES = 4
"""Simulations of solutions of the stage programme in a row without improvement after which no more programmes are solved."""
PROGRAMMES = 16
"""Stage programmes in a row without a faster plan after which no more are solved: most prove only that they have none."""
LATE_TRIES = 4
"""Simulations in a row without improvement once the time limit has passed; none where one takes `LONG`."""
LONG = 1.0
"""Seconds of building and simulating a plan that count as long."""
LATE = 30.0
"""Seconds after the time limit up to which other strategies are still asked for their plans."""
MIXED_PROOF = 3.0
"""Seconds that the bound of plans with mixed stages has in any case; a simpler bound replaces it after that."""
ESTIMATES = 3
"""Sketches of a variant that are priced where the variant is only searched for a faster plan."""
UNPROVED = 100
"""Variants in a row that cannot change the certificate and gave no faster plan, after which the search ends."""
ROUND = 20
"""Number of such variants after which candidates of the pool are simulated."""
ROUND_TRIES = 2
"""Simulations in a row without improvement after which such a round ends."""
LAST_TRIES = 20
"""Simulations in a row without improvement after which the search ends."""
OPTIMAL_GAP = 1e-3
"""A plan is called optimal where no plan of the searched space can be faster by more than this share."""


@dataclass(slots=True)
class _Search:
    """What is known so far: the best simulated plan, and bounds of all shapes."""

    request: Request
    context: PlanningContext
    deadline: float
    best: Plan | None = None
    bounds: list[float] = field(default_factory=list)
    solvers: dict[str, None] = field(default_factory=dict)
    seen: set[tuple[Shape, tuple[tuple[str, int], ...]]] = field(default_factory=set)
    pool: Pool = field(default_factory=Pool)
    vain: int = 0
    programmes: int = 0
    unproved: int = 0
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
        self.context.progress(f"{doing}, {best}")

    def offer(self, shape: Shape, stages: tuple[tuple[str, int], ...]) -> bool:
        """Play a pipeline, if it can be built and fits, and keep it if it is the fastest so far."""
        if (shape, stages) in self.seen:
            return False
        self.seen.add((shape, stages))
        begun = time.monotonic()
        better = [self.keep(simulate_plan(plan)) for plan in self.laid(shape, stages)]
        self.spare(time.monotonic() - begun)
        return any(better)

    def simulate(self, candidate: Candidate) -> bool:
        """Simulate a candidate, and record its contention for others of its kind."""
        before = len(self.context.simulated)
        better = self.offer(candidate.shape, candidate.stages)
        if simulated := self.context.simulated[before:]:
            self.pool.learn(candidate, min(map(step, simulated)))
        return better

    def laid(self, shape: Shape, stages: tuple[tuple[str, int], ...]) -> list[Plan]:
        """Plans of a pipeline, its nodes filled one after the other and, where that differs, evenly.

        Only those that can be built, fit and are faster than the best plan on an idle network."""
        counts = Counter(name for name, _ in stages)
        clusters = self.request.topology.fleet.cluster
        found: list[Plan] = []
        for evenly in (False, True) if any(uneven(clusters(name), shape, n) for name, n in counts.items()) else (False,):
            with suppress(PlanError):
                found += filter(fits, [build(self.request, shape, stages, "certified", evenly)])
        try:
            return [plan for seconds, plan in zip(evaluate(found), found, strict=True) if seconds < self.cutoff]
        except NotModelled:  # what the evaluator does not hold is simulated in any case
            return [min(found, key=step_seconds)]

    def spare(self, seconds: float) -> None:
        """Leave time for what follows the search, where simulating a plan takes long: other strategies simulate theirs."""
        if seconds > max(self.longest, LONG):
            most = self.request.time_limit / FOLLOWING
            self.deadline -= min(FOLLOWING * seconds, most) - min(FOLLOWING * self.longest, most)
            self.longest = seconds

    def keep(self, simulated: Plan) -> bool:
        """Keep a simulated plan if it is the fastest so far."""
        self.context.simulated.append(simulated)
        better = step(simulated) < self.cutoff
        if better:
            self.best, self.unproved = simulated, 0
        return better


def plan(request: Request, context: PlanningContext) -> Plan:
    """The fastest plan found, with its certificate. Raises Infeasible where no plan fits."""
    search = _Search(request, context, time.monotonic() + request.time_limit)
    bases = list(searched(request))
    open_bounds, mixed_least = [0.0], None
    try:
        _find(search, bases)
        if not request.machines:  # on part of the fleet a plan is wanted, not a proof
            open_bounds = _prove(search, bases)
            if -LATE < search.left <= 0:
                _ask_others(search)
            mixed_least = _mixed_least(search)
    except KeyboardInterrupt:  # the best plan so far, with its gap, is an answer
        if search.best is None:
            raise
        context.interrupted = True
        open_bounds = [relaxed_bound(request, context)]
    return _answer(search, open_bounds, mixed_least)


def _ask_others(search: _Search) -> None:
    """Where time ran out, plans of others that are quickly had: a hasty answer is not worse than theirs."""
    for name in ("holmes", "megatron"):
        with suppress(Infeasible):
            think = functools.partial(get(name).plan, search.request, search.context)
            search.keep(search.context.answer(name, think))


def _find(search: _Search, bases: list[Shape]) -> None:
    """Find a first plan: estimate shapes, evaluate the best pipelines, simulate the fastest of them."""
    usual = [base for base in bases if base.microbatch_size in USUAL_SIZES]
    of = {splitting(base): base for base in usual or bases}
    promising = _ranked(search, of, BASES, tails=False)
    found = [(variant, of[shape]) for shape in promising for variant in variants(search.request, of[shape])]
    few = (one for one, base in found if one.zero_stage == base.zero_stage and one.vpp <= max(FIRST_CHUNKS, base.vpp))
    _first_candidates(search, _ranked(search, few, ESTIMATED))
    if search.best is None:  # what takes longer to simulate is else left to the proof
        _first_candidates(search, _ranked(search, (variant for variant, _ in found), ESTIMATED))
    idle = 0
    for seconds, plan in mixed(search.context, "certified", search.cutoff, search.deadline) if search.left > 0 else ():
        if seconds >= search.cutoff or idle >= MIXED_TRIES or search.left <= 0:
            break
        idle = 0 if search.keep(simulate_plan(plan)) else idle + 1
        search.tell("simulating mixed stages")


def _first_candidates(search: _Search, found: Iterable[Shape]) -> None:
    """Estimate pipelines of shapes, evaluate the best estimates, simulate the best candidates."""
    estimated: list[Estimate] = []
    for shape in found:
        if search.left <= 0 and estimated:
            break
        estimated += estimates(search.context, shape, node_classes(search.context, shape))[:3]
    estimated.sort(key=lambda estimate: estimate.seconds)
    search.tell(f"{len(estimated)} estimates")
    evaluated: list[Candidate] = []
    for estimate in estimated[:EVALUATED]:
        if estimate.seconds > min((candidate.seconds for candidate in evaluated), default=math.inf) * (1 + ROUGH):
            break
        evaluated.append(estimate.evaluated())
    search.pool.add(_improved(evaluated, IMPROVED), search.cutoff * (1 - OPTIMAL_GAP))
    _play(search, FIRST_TRIES)


def _improved(candidates: list[Candidate], most: int) -> list[Candidate]:
    """The fastest candidates, their weights gathered either way, after local search over the layers of their stages."""
    fastest = sorted(candidates, key=lambda candidate: candidate.seconds)[:most]
    return [way.improved() for candidate in fastest for way in candidate.either()]


def _ranked(search: _Search, found: Iterable[Shape], most: int, tails: bool = True) -> list[Shape]:
    """The first shapes in the order of a quick estimate, so many at most, without those that do not fit.

    A shape waits with an estimate that leaves out messages, and is never above the other, until it is the first by that."""
    context, heap = search.context, list[tuple[float, int, Shape, bool]]()
    for shape in found:
        if search.left <= 0 and heap:
            break
        least = quick_estimate(context, shape, node_classes(context, shape), False, False)
        if least < math.inf:
            heap.append((least, len(heap), shape, False))
    heapq.heapify(heap)
    ranked: list[Shape] = []
    while heap and len(ranked) < most:
        _, index, shape, known = heapq.heappop(heap)
        if known or search.left <= 0:
            ranked.append(shape)
        else:
            estimate = quick_estimate(context, shape, node_classes(context, shape), tails)
            heapq.heappush(heap, (estimate, index, shape, True))
    return ranked


def _prove(search: _Search, bases: list[Shape]) -> list[float]:
    """Bounds of all that was not settled; those of the rest are in `search.bounds`. Better plans found on the way are kept.

    Each entry of the heap is a bound and what it holds for: a base (a shape under any schedule and ZeRO stage), a state (under
    any ZeRO stage), a variant, or the deadline tests of a variant's orders. The entry with the least bound is opened until
    none is below the target."""
    context, numbers = search.context, itertools.count()
    heap: list[tuple[float, int, Shape, _Family | _Doubt]] = []

    def claim(bound: float, shape: Shape, what: _Family | _Doubt) -> None:
        heapq.heappush(heap, (bound, next(numbers), shape, what))

    for base in bases:
        claim(quick_bound(context, base, node_classes(context, base), True), base, _Family("base", None))
    while heap and heap[0][0] < search.target and search.left > 0 and search.unproved < UNPROVED:
        bound, _, shape, what = heapq.heappop(heap)
        if isinstance(what, _Doubt):
            closer, settled = _closer(search, shape, what, bound)
            if settled or closer >= search.target:
                search.bounds.append(closer)
            else:
                claim(closer, shape, what)
            search.tell(f"{len(search.bounds)} layouts settled")
        elif what.kind == "base":
            for state, orders in _states(search, shape):
                state_bound = max(bound, quick_bound(context, state, node_classes(context, state)))
                claim(state_bound, state, _Family("state", orders))
        elif what.kind == "state":
            for variant, orders in _variants(search, shape, what.orders):
                claim(bound, variant, _Family("variant", orders))
        else:
            reached, doubt = _reaching(search, shape, what.orders, bound)
            if reached < search.target:
                claim(reached, shape, doubt)
            else:
                search.bounds.append(reached)
    _play(search, LAST_TRIES)
    return [bound for bound, *_ in heap]


@dataclass(frozen=True, slots=True)
class _Family:
    """What a bound holds for: a base, a state or a variant, on pipelines of one stage and on those in `orders` of classes."""

    kind: str
    orders: Orders


def _states(search: _Search, base: Shape) -> Iterator[tuple[Shape, Orders]]:
    """A base under every schedule and vpp that is not ruled out, with its first ZeRO stage for all."""
    every = tuple(variants(search.request, base))
    first = [variant for variant in every if variant.zero_stage == every[0].zero_stage]
    plain = [variant for variant in first if variant.vpp == 1]
    cut = [variant for variant in first if variant.vpp > 1]
    names = tuple(variant.schedule for variant in plain)
    if len(plain) > 1:
        yield from _family(search, splitting(base), every, functools.partial(AnySchedule, names=names), plain)
    else:
        yield from ((state, None) for state in plain)
    if len(cut) > 1:
        yield from _family(search, min(cut, key=lambda one: one.vpp), every, AnyChunks, cut)
    else:
        yield from ((state, None) for state in cut)


def _variants(search: _Search, state: Shape, among: Orders) -> Iterator[tuple[Shape, Orders]]:
    """A state under every ZeRO stage, unless no stage can be worth it."""
    every = tuple(replace(state, zero_stage=zero) for zero in zero_stages(search.request, state))
    if len(every) > 1:
        yield from _family(search, state, every, AnyZeroStage, every, among)
    else:
        yield from ((variant, among) for variant in every)


def _family(
    search: _Search,
    shape: Shape,
    every: Sequence[Shape],
    test: Callable[..., AnyZeroStage],
    members: Sequence[Shape],
    among: Orders = None,
) -> Iterator[tuple[Shape, Orders]]:
    """Members of a family, each with the orders in which it may be worth it; none where `test` rules out all pipelines.

    The family is a shape under any of the ZeRO stages of `every`."""
    classes = node_classes(search.context, shape)
    lightest = node_classes(search.context, replace(shape, zero_stage=max(variant.zero_stage for variant in every)))
    orders = orders_within(test, search.context, classes, lightest, search.target, among)
    if orders == frozenset() and not _may_be_alone(search, shape):
        search.bounds.append(search.target)
    else:
        yield from ((member, orders) for member in members)


def _may_be_alone(search: _Search, shape: Shape) -> bool:
    """Whether a pipeline of one stage may be worth it, under any schedule and ZeRO stage; the shape's is the first."""
    asked = search.request.wishes.pp in (None, 1)
    every = (option for one in overlaps(shape) for option in node_classes(search.context, one))
    return asked and any(way.single_bound < search.cutoff for option in every for way in option.alone)


@dataclass(slots=True, eq=False)
class _Doubt:
    """Deadline tests of the orders of a variant's classes that rule out too little, and what was priced of their pipelines.

    `known` holds, by shape and place of the order, the pipelines that were priced and the fastest of them."""

    orders: tuple[DeadlineTest | AnyOrder, ...]
    known: dict[tuple[Shape, int], tuple[set[Row], list[Candidate]]] = field(default_factory=dict)


def _reaching(search: _Search, shape: Shape, among: Orders, bound: float) -> tuple[float, _Doubt]:
    """A bound on the pipelines of a variant, however weights are gathered, and the orders of its classes not ruled out."""
    classes, ways = node_classes(search.context, shape), overlaps(shape)
    if _adds_nothing(search, shape):
        return search.target, _Doubt(())
    if search.request.wishes.pp in (None, 1):
        search.bounds += [_single(search, one, option) for one in ways for option in node_classes(search.context, one)]
    orders = deadline_tests(search.context, classes, search.target, len(ways) > 1, among)
    return deadline_bound(orders, bound, search.target), _Doubt(tuple(orders))


def _single(search: _Search, shape: Shape, option: NodeClass) -> float:
    """The least that a pipeline of one place takes, which is simulated if it might be the fastest; infinite where it does
    not."""
    layers = option.workload.model.layers
    least = option.microbatches * layers * option.layer_seconds
    if least >= search.cutoff:
        return least
    lighter = _lighter(search, shape)
    if (
        lighter
        and _fits_alone(option, shape)
        and any(
            _fits_alone(other, lighter) for other in node_classes(search.context, lighter) if other.cluster == option.cluster
        )
    ):
        return math.inf
    seconds = math.inf
    for way in option.alone if _fits_alone(option, shape) else ():
        closed = way.single_seconds()
        if closed < search.cutoff * (1 - OPTIMAL_GAP):
            with suppress(NotModelled):  # the closed form is a bound of what the evaluator does not hold
                closed = priced(search.context, shape, (way,), [((0, layers),)], 1)[0].seconds
        seconds = min(seconds, closed)
    if seconds < search.cutoff:
        search.offer(shape, ((option.cluster.name, layers),))
    return seconds


def _lighter(search: _Search, shape: Shape) -> Shape | None:
    """The variant that is as fast on each pipeline that fits it: ZeRO 1 in place of 2, which reduces more often."""
    free = shape.zero_stage == 2 and search.request.wishes.zero_stage is None
    return replace(shape, zero_stage=1) if free else None


def _adds_nothing(search: _Search, shape: Shape) -> bool:
    """Whether memory rules out no pipeline of a lighter variant that might be the fastest."""
    lighter = _lighter(search, shape)
    if lighter is None:
        return False
    layers = search.request.workload.model.layers
    classes = node_classes(search.context, lighter)
    most = min(sum(option.capacity for option in classes), layers // shape.vpp)
    held = _most_held(shape, classes[0].microbatches, most) if classes else ((0, 0),)
    return all(
        option.memory.most_layers(role, held) >= min(search.target / (option.microbatches * option.layer_seconds), layers)
        for option in classes
        for role in ("first", "middle", "last", "only")
    )


def _most_held(shape: Shape, microbatches: int, pp: int) -> tuple[tuple[int, int], ...]:
    """As many microbatches as a place of up to pp can hold in flight, or more (`schedules.in_flight`)."""
    schedule = schedules.get(shape.schedule)
    if schedule.CHUNKED:
        return ((min(microbatches * shape.vpp, (shape.vpp + 1) * pp), 0),)
    if schedule.SPLITS_BACKWARD:
        return ((min(microbatches, 2 * pp),) * 2,)
    return ((microbatches if shape.schedule == "gpipe" else min(microbatches, pp), 0),)


def _fits_alone(option: NodeClass, shape: Shape) -> bool:
    """Whether a pipeline of one place has layers for its virtual stages, and memory for all layers."""
    if option.workload.model.layers < shape.vpp:
        return False
    enough = shape.enough(option.microbatches, 1)
    held = schedules.in_flight(shape.schedule, 0, 1, enough, shape.vpp)
    return option.memory.most_layers("only", held) >= option.workload.model.layers


def _rows(search: _Search, shape: Shape, test: DeadlineTest | AnyOrder, seconds: float, most: int) -> list[Row] | None:
    """Pipelines that are not ruled out to take so many seconds, without those that a lighter variant beats."""
    found, lighter = test.pipelines(seconds, most), _lighter(search, shape)
    if not found or lighter is None:
        return found
    others = {option.cluster.name: option for option in node_classes(search.context, lighter)}
    able = tuple(others.get(option.cluster.name) for option in test.order)
    some = tuple(option for option in able if option is not None)
    return too_large(search.context, lighter, some, found) if len(some) == len(able) else found


def _closer(search: _Search, shape: Shape, doubt: _Doubt, bound: float) -> tuple[float, bool]:
    """A closer bound of pipelines that are not ruled out, and whether there is no closer one.

    The evaluator prices those that are listed. Where they are too many, or another bound is settled that is not higher, the
    bound stays, and what is left to do is to look for a faster plan."""
    helps = bound < min(search.bounds, default=math.inf) and search.priced < PRICED
    search.unproved += not helps
    if not helps and search.unproved % ROUND == 0:
        _play(search, ROUND_TRIES)
    try:
        seconds, rows = _listed(search, shape, doubt.orders, bound, helps)
        found = list(_priced(search, shape, doubt, rows))
    except NotModelled:
        _improve(search, shape)
        return bound, True
    _add(search, found)
    if not all(order.exact for order in doubt.orders):
        _improve(search, shape)
        return bound, True
    least = min((candidate.seconds for candidate in found), default=math.inf)
    return min(least, seconds), least <= seconds


def _listed(
    search: _Search, shape: Shape, orders: tuple[DeadlineTest | AnyOrder, ...], bound: float, closely: bool
) -> tuple[float, list[list[Row]]]:
    """Pipelines of each order that are not ruled out to take so many seconds: all that might be faster than the best plan, or,
    where those are too many, `closely` those that might take little more than the bound.

    Raises NotModelled where these are too many as well."""

    few = [_rows(search, shape, order, search.target, FEW) for order in orders]

    def every(seconds: float) -> list[list[Row]] | None:
        found: list[list[Row]] = []
        for order, known in zip(orders, few, strict=True):
            some = _rows(search, shape, order, seconds, MOST) if known is None else known
            if some is None:
                return None
            found.append(some)
        return found

    complete = [some for some in few if some is not None]
    found = (search.target, complete) if len(complete) == len(orders) else None
    share = CLOSER if found is None and closely else math.inf
    while share < math.inf:
        seconds = min(search.target, bound * (1 + share))
        if (some := every(seconds)) is not None:
            found = seconds, some
        enough = some is None or sum(map(len, some)) >= FEW or seconds == search.target
        share = math.inf if enough else 2 * share
    if found is None:
        raise NotModelled("too many pipelines")
    return found


def _priced(search: _Search, shape: Shape, doubt: _Doubt, rows: list[list[Row]]) -> Iterator[Candidate]:
    """The fastest pipelines of each order's, priced by the evaluator. Raises NotModelled for what it does not hold."""
    for place, (order, some) in enumerate(zip(doubt.orders, rows, strict=True)):
        for one in overlaps(shape) if some else ():
            known, fastest = doubt.known.get((one, place), (set(), []))
            fresh = [row for row in some if row not in known]
            if fresh:
                search.priced += len(fresh)
                fastest += priced(search.context, one, under(search.context, one, order.order), fresh, KEPT)
                doubt.known[one, place] = known.union(fresh), fastest
            yield from fastest


def _improve(search: _Search, shape: Shape) -> None:
    """Search a variant for a faster plan, without a proof: by candidates and by the stage programme.

    The stage programme keeps the stages of a class in order of their size, so its bound does not hold for all pipelines."""
    found = estimates(search.context, shape, node_classes(search.context, shape))[:ESTIMATES]
    _add(search, _improved([estimate.evaluated() for estimate in found], 1))
    _solve(search, shape)


def _play(search: _Search, tries: int) -> None:
    """Simulate candidates of the pool until `tries` in a row did not improve the best plan."""
    idle, late = 0, LATE_TRIES if search.longest < LONG else 0
    while idle < (tries if search.left > 0 or search.best is None else min(tries, late)):
        candidate = search.pool.take(search.cutoff)
        if candidate is None:
            return
        idle = 0 if search.simulate(candidate) else idle + 1
        search.tell("simulating candidates")


def _add(search: _Search, found: list[Candidate]) -> None:
    """Add candidates to the pool, and simulate the most promising one where its estimate is below the best step."""
    search.pool.add(found, search.cutoff)
    likely = min(found, key=lambda candidate: search.pool.expected(candidate, CONTENTION), default=None)
    if likely is not None and search.pool.expected(likely, CONTENTION) < search.cutoff:
        search.simulate(likely)


def _solve(search: _Search, shape: Shape) -> None:
    """Solve the stage model over the orders of a variant's classes, and simulate the assignments found."""
    for order in orders(search.context, node_classes(search.context, shape)):
        if search.vain >= SOLVED_TRIES or search.programmes >= PROGRAMMES or search.left <= 0:
            return
        search.programmes += 1
        with suppress(TimeoutError):
            found = solve(search.context, order, search.request.wishes.pp, search.cutoff, search.left)
            if found is not None:
                search.solvers[found.solver] = None
                better = search.offer(shape, found.stages)
                search.vain = 0 if better else search.vain + 1
                search.programmes = 0 if better else search.programmes


def _answer(search: _Search, open_bounds: list[float], mixed_least: float | None) -> Plan:
    if search.best is None:
        search.best = _any_plan(search)
    objective = step(search.best)
    bound = min([objective, *search.bounds, *open_bounds])
    if is_mixed(search.best):
        mixed_least = work_bound(search.context) if mixed_least is None else mixed_least
        bound = min(bound, mixed_least)
    gap = 1 - bound / objective
    certificate = Certificate(
        status="optimal" if gap <= OPTIMAL_GAP else "feasible",
        objective_s=objective,
        lower_bound_s=bound,
        gap=gap,
        solver="+".join(["closed form", *sorted(search.solvers)]),
        seconds=search.request.time_limit,
        mixed_lower_bound_s=mixed_least,
        space=axes(search.request),
        outside=outside(search.request),
    )
    return search.best.annotated(certificate=certificate, made_by=MadeBy("certified", search.best.made_by.version))


def _mixed_least(search: _Search) -> float | None:
    """A lower bound on plans with mixed stages, at most the best step; None where there are none, or no plan yet."""
    request, context = search.request, search.context
    if search.best is None or len(list(request.clusters())) < 2:
        return None
    found = mixed_bound(context, layouts(request), search.cutoff, max(search.deadline, time.monotonic() + MIXED_PROOF))
    return work_bound(context) if found is None else found


def _any_plan(search: _Search) -> Plan:
    """Some plan that fits, where none was found in time. Raises Infeasible, which says which demand fails."""
    found = fitting(search.request, "certified")
    if found is None:
        raise Infeasible(why_none(search.request))
    return simulate_plan(found)
