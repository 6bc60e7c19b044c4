"""The search for plans of unlike pipelines that are faster than a plan of alike replicas.

Column generation, in rounds. Each round takes the solutions of the master programme for a deadline, the best step so far, those
that promise most samples first (`solutions`). A solution is divided, simulated and balanced, also without one of its columns;
where it is faster, its step is the next deadline. On fleets of few parts, pairs and triples of columns follow, under each
schedule, the fastest by estimates first. Then columns of the best plan are exchanged for others of their parts, the best plans
are tried under other schedules, columns with context parallelism take the place of those of the best plan, and last the
neighbours of the best ones are simulated (`refinement`).

The search has no bound of its own: a part is planned without a proof, and parts consist of whole nodes;
`planner.bounds.unlike_pipelines` bounds all plans."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, islice, product

from planner.bounds.pipeline_modes import Modes
from planner.pipelines.assembly import balanced, divided, estimated, forwards, microbatches, step_of, together
from planner.pipelines.budgets import USUAL, PipelineBudgets, Work
from planner.pipelines.columns import Column, Columns, divides_experts, is_resized, layouts
from planner.pipelines.part_bounds import PartBounds
from planner.pipelines.parts import Part, parts
from planner.pipelines.refinement import SCHEDULES, refined
from planner.pipelines.solutions import Solutions
from planner.request import Request
from planner.search.along_a_v import is_asked
from planner.time_limit import TimeLimit
from sim.plan.pipelines import PipelinesPlan
from sim.units import Seconds

ROUNDS = 24
"""Most solutions of the master programme that are simulated (a guess)."""
FORWARDS = 30_000
"""Forwards of microbatches on stages (`forwards`) in simulated solutions, after which no more are simulated unless one of them
is faster than all before: seconds (a guess). Small plans are many solutions, long pipelines few."""
FIRST = 2
"""Solutions of single nodes and whole clusters that are simulated before other parts are planned (a guess)."""
EXCHANGES, EXCHANGED = 16, 8_000
"""Most plans that are simulated after that for changes of the columns of the best one, and most forwards in them (guesses)."""
MISJUDGED = 0.01
"""How much slower columns may be estimated than those of the best plan to be simulated in place of them (a guess)."""
FEW = 4
"""Columns of a solution up to which each of them is left out once (a guess)."""
LATER = 0.03
"""How far above the deadline plans may be that are then changed (a guess: on `peers/hexiscale-a-40` from 46.7 to 43.85 s)."""
FEW_PARTS, SETS, SIZES, SET_FORWARDS = 8, 256, 12, 12_000
"""Parts of a fleet up to which all pairs and triples of columns are estimated, under `OF_SETS`; of so many, the fastest,
that many of each layout are simulated, which differ in their sizes of microbatches, up to so many forwards (guesses)."""
OF_SETS = ("1f1b", "zb-h1", "zb-h2")
"""Schedules of these pairs and triples; the others differ little from one of them where pipelines are short."""
TRIPLES = 20_000
"""Triples of known columns up to which they are estimated, which takes a second (a guess)."""
RESCHEDULED, NEARLY, RESCHEDULES = 8, 0.3, 8_000
"""Plans tried under other schedules: how many, how much slower than the best, most forwards (guesses); always the best."""
MIXED, STARTS = 12, 8
"""Searches for columns that may divide experts, of a second or less; plans whose neighbours are simulated (guesses)."""


@dataclass(frozen=True, slots=True)
class Found:
    """The fastest simulated plan, and the columns that were planned for it."""

    plan: PipelinesPlan
    columns: int

    @property
    def step_s(self) -> Seconds:
        """Its simulated step."""
        return step_of(self.plan)


def best(
    request: Request, deadline: Seconds, limit: TimeLimit | None = None, progress: Callable[[str], None] = lambda text: None,
    known: Modes | None = None, budgets: PipelineBudgets = USUAL,
) -> Found | None:  # fmt: skip
    """The fastest plan of unlike pipelines with a step below `deadline`; None where the search finds none.

    The model must have equal layers, and a fleet more than one node. Work is counted (`budgets`), and the time limit is a
    safeguard. known: the modes of its clusters, if they are known."""
    every = parts(request)
    if not every or not is_modelled(request):
        return None
    bounds = PartBounds(request, True, known)
    search = _Search(request, every, Work(limit or TimeLimit(request.time_limit), budgets), progress, bounds)
    return search.best(deadline)


def is_modelled(request: Request) -> bool:
    """Whether the model has plans of unlike pipelines that are searched: equal layers, and no schedule along a V is pinned."""
    return request.workload.model.is_uniform and not is_asked(request)


def has_parts(request: Request) -> bool:
    """Whether the fleet has parts that are searched: more than one node, and not too many clusters."""
    return bool(parts(request))


def why_none(request: Request, deadline: Seconds, limit: TimeLimit, known: Modes | None = None) -> str:
    """Why the search can find no plan with a step below `deadline`, which takes a fraction of its time; empty where it may.
    known: as in `best`."""
    every = parts(request)
    if not every:
        return "for the fleet has one node or too many clusters"
    return PartBounds(request, every=known).rules_out(every, deadline, limit)


Tried = tuple[PipelinesPlan, tuple[Column, ...]]
"""A simulated plan and its columns."""


class _Search:
    """One search: its columns, and the solutions that were tried."""

    def __init__(self, request: Request, every: list[Part], work: Work, progress: Callable[[str], None], bounds: PartBounds):
        self.request, self.every, self.work = request, every, work
        self.columns = Columns(request, progress, work.limit)
        self.solutions = Solutions(request, every, self.columns, bounds, work)
        self.nodes = tuple(cluster.nodes for cluster in request.clusters())
        self.keys = set[tuple[object, ...]]()  # of the columns and schedules that were tried
        self.tried = list[Tried]()
        self._batch = request.workload.global_batch_size
        self.rounds, self.forwards = 0, 0  # plans that were simulated, and forwards in them

    def best(self, deadline: Seconds) -> Found | None:
        """The fastest plan below a deadline. Plans somewhat above it (`LATER`) are changed, too, until they are below it."""
        later = deadline * (1 + LATER)
        best = self._divide_experts(self._by_sets(self._by_master(later), later), later)
        if best is None:
            return None
        self._exchange(best, MISJUDGED)
        self._reschedule()
        if self.work.budgets.every_part:
            self._divide_sequences()
        found = refined([plan for plan, _ in self._starts()], self.work)
        return Found(found, self.columns.searched) if step_of(found) < deadline else None

    def _by_master(self, deadline: Seconds) -> Tried | None:
        """The fastest of the solutions of the master programme, each of which is the next one's deadline."""
        best: Tried | None = None
        begun, rounds, is_faster, plans_more = self.forwards, self.rounds, True, False
        every_part = self.work.budgets.every_part
        while is_faster:
            is_faster = False
            solutions = self.solutions.ordered(deadline, plans_more)
            for columns in self._and_smaller(solutions if plans_more else islice(solutions, FIRST)):
                if self.rounds >= rounds + ROUNDS or self.forwards - begun >= FORWARDS or self.work.is_over():
                    break
                plan = self._simulated(columns, deadline)
                if plan is not None and step_of(plan) < deadline:
                    best, deadline, begun, is_faster = (plan, columns), step_of(plan), self.forwards, True
                    break
            is_faster, plans_more = is_faster or plans_more != every_part, every_part
        return best

    def _and_smaller(self, solutions: Iterator[tuple[Column, ...]]) -> Iterator[tuple[Column, ...]]:
        """Solutions, each also without one of its columns: a slow network of one node holds back the gradients of all."""
        for columns in solutions:
            yield columns
            if len(columns) <= FEW:
                yield from ((*columns[:index], *columns[index + 1 :]) for index in range(len(columns)))

    def _by_sets(self, best: Tried | None, deadline: Seconds) -> Tried | None:
        """The best plan, or a faster one of `_sets`."""
        for columns, schedule in self._sets(step_of(best[0]) if best else deadline):
            plan = self._simulated(columns, step_of(best[0]) if best else deadline, schedule)
            if plan is not None and step_of(plan) < (step_of(best[0]) if best else deadline):
                best = plan, columns
        return best

    def _sets(self, below: Seconds) -> Iterator[tuple[tuple[Column, ...], str]]:
        """Two and three columns on nodes of their own with a schedule that compute the batch in less than `below` seconds, the
        fastest by estimates first, where there are few parts: estimates are rough there, and simulations short."""
        if len(self.every) > FEW_PARTS:
            return
        budgets = self.work.budgets
        for part, one in product(self.every if budgets.every_part else (), (True, False)):
            if self.columns.searched < budgets.columns and not self.work.is_over():
                self.columns.of(part, one)
        every = [] if self.work.is_over() else list(self._disjoint(below))
        times, begun = Counter[tuple[object, ...]](), self.forwards
        for _, number in sorted((estimated(self._batch, columns), number) for number, (columns, _) in enumerate(every)):
            columns, schedule = every[number]
            times[layouts(columns), schedule] += 1
            if times.total() > SETS or self.forwards > begun + SET_FORWARDS:
                return
            if times[layouts(columns), schedule] <= SIZES:
                yield columns, schedule

    def _disjoint(self, below: Seconds) -> Iterator[tuple[tuple[Column, ...], str]]:
        """Two known columns on nodes of their own, and three where columns are few, under each of `OF_SETS`, that compute the
        batch in less than `below` seconds; once there are columns with context parallelism, those with some of them."""
        is_divided = any(column.plan.config.cp > 1 for column in self.columns.known)
        for schedule in OF_SETS:
            known = self._under(schedule)
            for number in (2, 3) if math.comb(len(known), 3) <= TRIPLES else (2,):
                for several in together(known, number, self.nodes, self._batch, below):
                    if not is_divided or any(column.plan.config.cp > 1 for column in several):
                        yield several, schedule

    def _exchange(self, best: Tried, slower: float) -> None:
        """Try other columns in place of those of the best plan while that makes it faster, those with the least estimates
        first, up to a share above that of the best plan: one at a time, of the same part, or microbatches of half or twice the
        size in several."""
        rounds, begun, is_faster = self.rounds, self.forwards, True
        while is_faster:
            (plan, columns), is_faster = best, False
            most = estimated(self._batch, columns) * (1 + slower)
            others = list(chain(self._exchanged(columns, plan.schedule), self._resized(columns, plan.schedule)))
            for seconds, number in sorted((estimated(self._batch, several), number) for number, several in enumerate(others)):
                if seconds > most or self.rounds >= rounds + EXCHANGES or self.forwards >= begun + EXCHANGED:
                    return
                found = self._simulated(others[number], step_of(plan), plan.schedule)
                if found is not None and step_of(found) < step_of(plan):
                    best, is_faster = (found, others[number]), True
                    break

    def _divide_experts(self, best: Tried | None, deadline: Seconds) -> Tried | None:
        """The best plan, or a faster one after known parts of a mixture were planned with expert parallelism, too: those of the
        best plan first, and all as long as they are few."""
        if not divides_experts(self.request):
            return best
        own = [(column.part, column.plan.config.dp == 1) for column in best[1]] if best else []
        known = sorted({(column.part, one) for column in self.columns.known for one in (True, False)}, reverse=True)
        for part, one in list(dict.fromkeys((*own, *known)))[:MIXED]:
            if not self.work.is_over():
                self.columns.divide_experts(part, one)
        if best is not None:
            deadline = step_of(best[0])
        return self._by_sets(self._by_master(deadline) or best, deadline)

    def _divide_sequences(self) -> None:
        """Plan the parts of the best plan with context parallelism, too, or all parts where they are few, and exchange its
        columns for these."""
        best = self._fastest(1, 0.0)[0]
        own = ((column.part, column.plan.config.dp == 1) for column in best[1])
        for part, one in product(self.every, (True, False)) if len(self.every) <= FEW_PARTS else dict.fromkeys(own):
            if not self.work.is_over():
                self.columns.divide_sequences(part, one)
        self._exchange(self._by_sets(best, step_of(best[0])) or best, 0.0)

    def _under(self, schedule: str) -> list[Column]:
        """The known columns that can run under a schedule."""
        found = (self.columns.under(column, schedule) for column in self.columns.known)
        return [column for column in found if column is not None]

    def _exchanged(self, columns: tuple[Column, ...], schedule: str) -> Iterator[tuple[Column, ...]]:
        """The columns with another one of its part in place of one of them."""
        known = self._under(schedule)
        for index, column in enumerate(columns):
            for other in known:
                if other.part == column.part and other.key != column.key:
                    yield (*columns[:index], other, *columns[index + 1 :])

    def _resized(self, columns: tuple[Column, ...], schedule: str) -> Iterator[tuple[Column, ...]]:
        """The columns with microbatches of half or twice the size in several of them: gradients wait for all pipelines, so that
        sizes may have to change together."""
        if len(columns) <= FEW:
            known = self._under(schedule)
            yield from product(*([one for one in known if is_resized(one, column)] for column in columns))

    def _reschedule(self) -> None:
        """Try the fastest plans under other schedules."""
        begun = self.forwards
        for (plan, columns), schedule in product(self._fastest(RESCHEDULED, NEARLY), ("1f1b", *SCHEDULES)):
            if plan is self._fastest(1, 0.0)[0][0] or self.forwards < begun + RESCHEDULES:
                self._simulated(columns, step_of(self._fastest(1, 0.0)[0][0]), schedule, microbatches(plan))

    def _fastest(self, number: int, slower: float) -> list[Tried]:
        """So many of the fastest plans that were tried, which are slower than the best by at most a share."""
        every = sorted(self.tried, key=lambda one: step_of(one[0]))[:number]
        return [one for one in every if step_of(one[0]) <= step_of(every[0][0]) * (1 + slower)]

    def _starts(self) -> list[Tried]:
        """The best of the plans that were tried for the same layouts, of those that have least steps."""
        found = dict[tuple[object, ...], Tried]()
        for plan, columns in self._fastest(len(self.tried), NEARLY):
            found.setdefault(layouts(columns), (plan, columns))
        return list(found.values())[:STARTS]

    def _simulated(
        self, columns: tuple[Column, ...], below: Seconds, schedule: str = "1f1b", numbers: tuple[int, ...] | None = None
    ) -> PipelinesPlan | None:
        """The simulated plan of columns, with numbers of microbatches to begin with; None where they were tried, have no plan,
        or are far from `below` so many seconds."""
        key = schedule, *sorted(column.key for column in columns)
        if len(columns) < 2 or key in self.keys or self.work.is_over():
            return None
        self.keys.add(key)
        numbers = numbers or divided(self._batch, columns)
        if numbers is None or max(one.step(number) for one, number in zip(columns, numbers, strict=True)) >= below:
            return None
        self.rounds += 1
        self.forwards += forwards(columns, numbers)
        plan = balanced(self.request, columns, numbers, schedule, below, self.work)
        self.tried += [(plan, columns)] if plan is not None else []
        return plan
