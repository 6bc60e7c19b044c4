"""The search for plans of unlike pipelines that are faster than a plan of alike replicas.

Column generation, in rounds. Each round solves the master programme for a deadline, the best step so far: columns that are
planned compute what they are known to, all others an optimistic number of samples, from the peaks of their devices and the
best share of its peak that a column of any part has reached. The columns of the solution that are not planned yet are planned,
and it is solved anew, until a solution has planned columns only. This one, and before that the best ones of the columns known
by then, are divided, simulated and balanced; where one is faster, its step is the next deadline. Gradients are reduced after
the last microbatch, and the slowest column counts: each solution has a limit of their seconds, which its deadline pays for, and
several limits are tried, with several limits of the number of replicas.

Parts that are not planned yet have no more samples than their bound says (`part_bounds`), and none where their gradients take
longer than the limit. The search has no bound of its own: a part is planned without a proof, and parts consist of whole nodes;
`planner.bounds.unlike_pipelines` bounds all plans."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

from planner.models.pipeline_master import Choice, most_samples
from planner.pipelines.assembly import balanced, divided, step_of
from planner.pipelines.columns import Column, Columns
from planner.pipelines.part_bounds import PartBounds
from planner.pipelines.parts import Part, parts, peak
from planner.pipelines.refinement import refined
from planner.request import Request
from planner.time_limit import TimeLimit
from sim.plan.pipelines import PipelinesPlan
from sim.units import Seconds

MOST_COLUMNS = 24
"""Searches for columns after which no more begin (a guess); one takes some tenths of a second to seconds."""
ROUNDS = 24
"""Most solutions that are simulated (a guess)."""
FORWARDS = 60_000
"""Forwards of microbatches on stages in simulated solutions, after which the search ends unless one of them is faster than all
before: seconds (a guess). Small plans are many solutions, long pipelines few."""
EXCHANGES = 16
"""Most plans that are simulated after that, with a column exchanged for another one of its part (a guess)."""
RESIZED = 6
"""Plans that are simulated for each choice of sizes, the fastest by estimates (a guess)."""
REPLICAS = (2, 3, 4, 6, 8, 12, 16, 32, 64)
"""Limits of the number of replicas that are tried (a guess)."""
FEW = 4
"""Columns of a solution up to which each of them is left out once (a guess)."""
SCHEDULES = ("zb-h1", "zb-h2")
"""Schedules that are tried at the end, in place of 1f1b: those without virtual stages that split the backward."""
FEW_PARTS = 8
"""Parts of a fleet up to which every two of them that have all nodes are tried (a guess)."""
NEARLY, RESCHEDULED = 0.01, 3
"""Plans that are tried under these schedules, too: how much slower than the best one they are, and how many (guesses)."""
ALIKE = 0.1
"""Relative difference of seconds of gradients for which one limit stands for several columns (a guess)."""
SHARES = (1.0, 0.75)
"""Shares of the batch that a solution must compute within the deadline to be simulated: first those that may meet it as
estimated, then all whose gradients may take less than was estimated (a guess)."""


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
    request: Request, deadline: Seconds, limit: TimeLimit | None = None, progress: Callable[[str], None] = lambda text: None
) -> Found | None:
    """The fastest plan of unlike pipelines with a step below `deadline`; None where the search finds none.

    The model must have equal layers, and a fleet more than one node. Work is counted, and the time limit is a safeguard."""
    every = parts(request)
    if not every or not is_modelled(request):
        return None
    search = _Search(request, every, limit or TimeLimit(request.time_limit), progress)
    return search.best(deadline)


def is_modelled(request: Request) -> bool:
    """Whether the model has plans of unlike pipelines that are searched: equal layers."""
    return request.workload.model.is_uniform


def has_parts(request: Request) -> bool:
    """Whether the fleet has parts that are searched: more than one node, and not too many clusters."""
    return bool(parts(request))


def why_none(request: Request, deadline: Seconds, limit: TimeLimit) -> str:
    """Why the search can find no plan with a step below `deadline`, which takes a fraction of its time; empty where it may."""
    every = parts(request)
    if not every:
        return "for the fleet has one node or too many clusters"
    return PartBounds(request).rules_out(every, deadline, limit)


class _Search:
    """One search: its columns, and the solutions that were tried."""

    def __init__(self, request: Request, every: list[Part], limit: TimeLimit, progress: Callable[[str], None]):
        self.request, self.every, self.limit = request, every, limit
        self.columns, self.bounds = Columns(request, progress, limit), PartBounds(request)
        self.nodes = tuple(cluster.nodes for cluster in request.clusters())
        self.tried: set[tuple[tuple[Part, int, int, int, int], ...]] = set()  # keys of columns
        self.rounds, self.forwards = 0, 0  # solutions that were simulated; forwards in them since a plan was faster
        self.share, self.solutions = SHARES[0], list[tuple[PipelinesPlan, tuple[Column, ...]]]()

    def best(self, deadline: Seconds) -> Found | None:
        """The fastest plan below a deadline."""
        for number in range(len(self.nodes)):  # single nodes first: they say what share of a peak can be reached
            self.columns.of(tuple(int(one == number) for one in range(len(self.nodes))), True)
        best: tuple[PipelinesPlan, tuple[Column, ...]] | None = None
        shares, solved = iter(SHARES[1:]), set[tuple[int, Seconds]]()
        while self.rounds < ROUNDS and self.forwards < FORWARDS and not self.limit.is_up():
            limits = next((one for one in self._limits(deadline) if one not in solved), None)
            if limits is None:
                self.share, solved = next(shares, 0.0), set()
                if not self.share:
                    break
                continue
            solved.add(limits)
            for columns in self._and_smaller(self._solutions(deadline, *limits)):
                plan = self._simulated(columns, deadline)
                if plan is not None and step_of(plan) < deadline:
                    best, deadline, solved, self.forwards = (plan, columns), step_of(plan), set(), 0
                    break
        for columns in self._halves() if best is not None else ():
            plan = self._simulated(columns, deadline)
            if plan is not None and step_of(plan) < deadline:
                best, deadline = (plan, columns), step_of(plan)
        if best is None:
            return None
        plan, _ = self._resized(*self._exchanged(*best))
        plan = refined(self._rescheduled(plan), self.limit)
        return Found(plan, self.columns.searched)

    def _halves(self) -> Iterator[tuple[Column, ...]]:
        """Two columns of one replica on all nodes, where there are few parts: the master programme knows too little of
        gradients to choose a pipeline over several nodes of a slow network."""
        for part in self.every if len(self.every) <= FEW_PARTS else ():
            other = tuple(have - used for have, used in zip(self.nodes, part, strict=True))
            if part <= other and not self.limit.is_up():
                found = [next(iter(self.columns.of(one, True)), None) for one in (part, other)]
                if found[0] is not None and found[1] is not None:
                    yield found[0], found[1]

    def _rescheduled(self, best: PipelinesPlan) -> PipelinesPlan:
        """The plan, or one of nearly the same step, under another schedule where that is faster."""
        near = [one for one in self.solutions if step_of(one[0]) <= step_of(best) * (1 + NEARLY)]
        for (plan, columns), schedule in product(sorted(near, key=lambda one: step_of(one[0]))[:RESCHEDULED], SCHEDULES):
            numbers = [sum(one.config.num_microbatches) for one in plan.pipelines]
            if not self.limit.is_up():
                other = balanced(self.request, columns, numbers, schedule, step_of(best))
                best = other if other is not None and step_of(other) < step_of(best) else best
        return best

    def _exchanged(self, best: PipelinesPlan, columns: tuple[Column, ...]) -> tuple[PipelinesPlan, tuple[Column, ...]]:
        """The plan and its columns, with other columns of the same parts where these make it faster, one at a time."""
        index = 0
        while index < len(columns) and not self.limit.is_up():
            part = columns[index].part
            others = (one for one in self.columns.known if one.part == part and one is not columns[index])
            for other in others:
                changed = (*columns[:index], other, *columns[index + 1 :])
                plan = self._simulated(changed, step_of(best)) if self.rounds < ROUNDS + EXCHANGES else None
                if plan is not None and step_of(plan) < step_of(best):
                    best, columns, index = plan, changed, -1
                    break
            index += 1
        return best, columns

    def _resized(self, best: PipelinesPlan, columns: tuple[Column, ...]) -> tuple[PipelinesPlan, tuple[Column, ...]]:
        """The plan and its columns, with microbatches of half or twice the size in several of them where that makes it faster:
        gradients wait for all pipelines, so that sizes may have to change together."""
        changed: tuple[Column, ...] | None = columns
        while changed is not None and len(columns) <= FEW and not self.limit.is_up():
            near = [[one for one in self.columns.known if _is_resized(one, column)] for column in columns]
            estimates = sorted((self._estimated(several), number, several) for number, several in enumerate(product(*near)))
            changed = None
            for seconds, _, several in estimates[:RESIZED]:
                plan = self._simulated(several, step_of(best)) if seconds < step_of(best) else None
                if plan is not None and step_of(plan) < step_of(best):
                    best, columns, changed = plan, several, several
        return best, columns

    def _estimated(self, columns: tuple[Column, ...]) -> Seconds:
        """Estimated step of columns, without gradients; infinite where the batch cannot be divided."""
        numbers = divided(self.request.workload.global_batch_size, columns)
        return max(one.step(number) for one, number in zip(columns, numbers, strict=True)) if numbers else math.inf

    def _limits(self, deadline: Seconds) -> Iterator[tuple[int, Seconds]]:
        """Limits of replicas, and of the seconds of their gradients, the smallest first: those of known columns, without those
        that are hardly above the one before."""
        devices = sum(cluster.devices for cluster in self.request.clusters())
        for replicas in (number for number in REPLICAS if number <= devices):
            last = 0.0
            for seconds in sorted(column.gradients(replicas) for column in self.columns.known):
                if seconds < deadline and seconds > last:
                    last = seconds * (1 + ALIKE)
                    yield replicas, last

    def _simulated(self, columns: tuple[Column, ...], below: Seconds) -> PipelinesPlan | None:
        """The simulated plan of columns; None where they were tried, have no plan, or are far from `below` so many seconds."""
        key = tuple(sorted(column.key for column in columns))
        if len(columns) < 2 or key in self.tried or self.limit.is_up():
            return None
        self.tried.add(key)
        numbers = divided(self.request.workload.global_batch_size, columns)
        if numbers is None or max(one.step(number) for one, number in zip(columns, numbers, strict=True)) >= below:
            return None
        self.rounds += 1
        self.forwards += sum(one.plan.config.pp * number for one, number in zip(columns, numbers, strict=True))
        plan = balanced(self.request, columns, numbers, below=below)
        self.solutions += [(plan, columns)] if plan is not None else []
        return plan

    def _solutions(self, deadline: Seconds, replicas: int, allowed: Seconds) -> Iterator[tuple[Column, ...]]:
        """Planned columns with up to so many replicas that compute most samples within a deadline, and reduce gradients within
        `allowed` seconds of it; whenever parts were planned, those of the columns known by then, and last those of all."""
        while not self.limit.is_up():
            chosen = self._chosen(list(self._offered(deadline - allowed, replicas, allowed)), replicas)
            if all(column is not None for _, column in chosen):
                yield tuple(column for _, column in chosen if column is not None)
                return
            for part, one in dict.fromkeys((choice.nodes, choice.replicas == 1) for choice, column in chosen if not column):
                if not self.limit.is_up():
                    self.columns.of(part, one)
            known = [one for one in self._offered(deadline - allowed, replicas, allowed) if one[1] is not None]
            yield tuple(column for _, column in self._chosen(known, replicas) if column is not None)

    def _and_smaller(self, solutions: Iterator[tuple[Column, ...]]) -> Iterator[tuple[Column, ...]]:
        """Solutions, each also without one of its columns: a slow network of one node holds back the gradients of all."""
        for columns in solutions:
            yield columns
            if len(columns) <= FEW:
                yield from ((*columns[:index], *columns[index + 1 :]) for index in range(len(columns)))

    def _chosen(self, offered: list[tuple[Choice, Column | None]], replicas: int) -> list[tuple[Choice, Column | None]]:
        """Those of the offered columns that together compute most samples; none where these are too few."""
        copies = most_samples([choice for choice, _ in offered], self.nodes, replicas, self.limit) if offered else ()
        chosen = [one for one, number in zip(offered, copies, strict=True) for _ in range(number)]
        batch = self.request.workload.global_batch_size
        return chosen if sum(choice.samples for choice, _ in chosen) >= self.share * batch * (1 - 1e-9) else []

    def _offered(self, deadline: Seconds, replicas: int, allowed: Seconds) -> Iterator[tuple[Choice, Column | None]]:
        """The columns of the master programme for a deadline; None where a part is not planned yet."""
        rate = self._best_rate() if self.columns.searched < MOST_COLUMNS else 0.0
        for part, one in itertools.product(self.every, (True, False) if replicas > 2 else (True,)):
            if self.columns.is_known(part, one):
                for column in self.columns.of(part, one):
                    samples = column.samples(deadline) if column.offered else 0
                    if samples and column.gradients(replicas) <= allowed:
                        yield Choice(part, column.plan.config.dp, samples), column
            elif rate * deadline > 0 and self.bounds.gradients(part, replicas) <= allowed:
                most = min(rate * peak(self.request, part) * deadline, self.bounds.samples(part, one, deadline))
                if most:
                    yield Choice(part, 1 if one else 2, most), None

    def _best_rate(self) -> float:
        """The most samples a second for each FLOP/s of peak that a known column computes."""
        rates = (
            column.plan.config.dp * column.plan.config.microbatch_size / column.each_s / peak(self.request, column.part)
            for column in self.columns.known
        )
        return max(rates, default=1 / self._flops())

    def _flops(self) -> float:
        """FLOPs of a sample."""
        return self.request.workload.flops / self.request.workload.global_batch_size


def _is_resized(column: Column, other: Column) -> bool:
    """Whether a column is another one with microbatches of half the size, of the same, or of twice the size."""
    alike = column.part == other.part and column.plan.stages == other.plan.stages
    small, large = sorted((column.plan.config.microbatch_size, other.plan.config.microbatch_size))
    return alike and column.plan.placement == other.plan.placement and large in (small, 2 * small)
