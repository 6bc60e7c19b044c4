"""The incumbent: the fastest plan simulated so far, the pool of candidates, and the simulations that replace the incumbent."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from planner.costs.context import PlanningContext
from planner.limits import NO_LIMITS
from planner.placement.latest_plans import LatestPlans
from planner.placement.ranks import build
from planner.placement.simulation import fits, step
from planner.progress import Progress
from planner.request import Request
from planner.search.budgets import Budgets
from planner.search.candidates import Candidate
from planner.search.mixed import is_mixed
from planner.search.pool import Pool
from planner.space.shape import Shape
from planner.space.shapes import uneven
from planner.time_limit import TimeLimit
from sim.analytic.evaluator import evaluate
from sim.analytic.plan_costs import step_seconds
from sim.engine.abandonment import Abandoned
from sim.errors import NoRoute, NotDefined, NotModelled
from sim.plan.plan import Plan
from sim.units import Seconds


@dataclass(slots=True)
class Incumbent:
    """The best plan and the means to replace it. `limit` is the time limit of the search.

    `seen` holds the pipelines already offered; `unproved` counts variants as `Budgets.unproved_variants` says; `longest` is the
    largest number of seconds that the plans of one pipeline took to build and simulate, if above `long_s`, else 0. `draft` is a
    plan that was found before the first plan; it is kept once that is known, and until then has no part in the search.
    `lower_bound` is proved for all pipelines of whole stages, `work_bound` for all plans. `best_shape` is the best plan's, if
    it was offered; `quickest` has the least quick estimate. `fastest_of` holds the fastest plan offered of each shape and
    length, with its seconds. `restarts` are postponed local searches (`planner.search.restaging`), `built` builds plans."""

    request: Request
    context: PlanningContext
    budgets: Budgets
    limit: TimeLimit
    best: Plan | None = None
    pool: Pool = field(default_factory=Pool)
    seen: set[tuple[Shape, tuple[tuple[str, int], ...]]] = field(default_factory=set)
    unproved: int = 0
    longest: float = 0.0
    draft: Plan | None = None
    lower_bound: float = 0.0
    work_bound: float = 0.0
    is_best_mixed: bool = False
    best_shape: Shape | None = None
    quickest: Shape | None = None
    fastest_of: dict[tuple[Shape, int], tuple[Seconds, Plan]] = field(default_factory=dict)
    restarts: list[Callable[[], Candidate]] = field(default_factory=list)
    built: LatestPlans = field(default_factory=LatestPlans)

    @property
    def cutoff(self) -> float:
        """Seconds of the best step; infinite where there is no plan yet."""
        return step(self.best) if self.best is not None else math.inf

    @property
    def target(self) -> float:
        """Seconds below which a step must be for its plan to be searched for."""
        return self.cutoff * (1 - self.budgets.target_gap)

    @property
    def is_over(self) -> bool:
        """Whether the time is up and there is a plan to return."""
        return self.plan is not None and self.limit.is_up()

    @property
    def plan(self) -> Plan | None:
        """The best plan, or the draft where there is none yet."""
        return self.best if self.best is not None else self.draft

    def report(self, activity: str) -> None:
        """Report the activity, the best step so far and the bound that is proved for it."""
        plan = self.plan
        bound = self.work_bound if self.is_best_mixed else max(self.lower_bound, self.work_bound)
        self.context.report(Progress(activity, None if plan is None else step(plan), bound))

    def keep(self, simulated: Plan) -> bool:
        """Keep a simulated plan if it is the fastest so far; return whether it is."""
        self.context.simulated.append(simulated)
        better = step(simulated) < self.cutoff
        if better:
            self.best, self.unproved, self.is_best_mixed, self.best_shape = simulated, 0, is_mixed(simulated), None
        return better

    def sketch(self, shape: Shape, stages: tuple[tuple[str, int], ...]) -> None:
        """Simulate a plan of a pipeline as the draft, where it can be built and fits memory."""
        before = self.limit.seconds_left
        with suppress(NoRoute, NotDefined):
            plan = build(self.request, shape, stages, "certified")
            if fits(plan):
                self.draft = self.simulated(plan)
        self._reserve(before - self.limit.seconds_left)

    def keep_draft(self) -> None:
        """Keep the draft if it is the fastest plan so far; it is a draft no longer."""
        if self.draft is not None:
            self.keep(self.draft)
            self.draft = None

    def begin(self, start: Plan) -> None:
        """Simulate a given plan and keep it, if it fits memory, the limits allow it and the target can run it."""
        before = self.limit.seconds_left
        if fits(start) and not self.request.refuses(start):
            self.keep(self.simulated(start))
        self._reserve(before - self.limit.seconds_left)

    def simulated(self, plan: Plan) -> Plan:
        """The plan with the prediction of its simulation."""
        with self.context.effort.spent("plans simulated", 1):
            return self.context.timelines.simulate(plan)

    def challenge(self, plan: Plan, below: Seconds | None = None) -> tuple[Seconds, bool]:
        """Simulate a plan, and keep it if it is the fastest so far; return the seconds of its step and whether it is.

        The simulation is abandoned when the step is proved to be longer than the best one, or than `below`, unless every step
        is wanted (`PlanningContext.every_step`). Then the seconds are an estimate, and the plan is not among the simulated
        ones."""
        limit = math.inf if self.context.every_step else self.cutoff if below is None else below
        with self.context.effort.spent("plans simulated", 1):
            found = self.context.timelines.simulate_up_to(plan, limit)
        return (max(found.estimate_s, limit), False) if isinstance(found, Abandoned) else (step(found), self.keep(found))

    def offer(self, shape: Shape, stages: tuple[tuple[str, int], ...]) -> bool:
        """Simulate the plans of a pipeline of (cluster, layers) stages, if it is not in `seen`; return whether one is the
        fastest so far."""
        return any(better for _, better in self._offered(shape, stages))

    def _offered(self, shape: Shape, stages: tuple[tuple[str, int], ...]) -> list[tuple[Seconds, bool]]:
        """What `challenge` returns for each plan of a pipeline; empty where the pipeline is in `seen`.

        After the first placement, the second is simulated unless a part of the first one's delay by contention would already
        make it slower than the best plan (`Budgets.placement_delay`). Long simulations (`Budgets.forwards_of_a_long_one`) are
        only run for plans that may be faster by the part that the proof searches for."""
        if (shape, stages) in self.seen:
            return []
        self.seen.add((shape, stages))
        before = self.limit.seconds_left
        found, least_delay = list[tuple[Seconds, bool]](), 0.0
        kind = replace(shape, overlap_param_gather=True), len(stages)
        for idle, plan in self._placed(shape, stages):
            below = self.target if forwards(plan) > self.budgets.forwards_of_a_long_one else self.cutoff
            if idle + least_delay < below:
                found.append(self.challenge(plan, below))
                if found[-1][0] < self.fastest_of.get(kind, (math.inf,))[0]:
                    self.fastest_of[kind] = found[-1][0], plan
                self.best_shape = shape if found[-1][1] else self.best_shape
                least_delay = self.budgets.placement_delay * (found[-1][0] - idle)
        self._reserve(before - self.limit.seconds_left)
        return found

    def _placed(self, shape: Shape, stages: tuple[tuple[str, int], ...]) -> list[tuple[Seconds, Plan]]:
        """(seconds on an idle network, plan) of a pipeline whose stages fill one node after the other and, where that differs,
        use their nodes evenly: of plans that can be built, fit memory and are faster than the best one there."""
        counts = Counter(name for name, _ in stages)
        clusters = self.request.topology.fleet.cluster
        plans: list[Plan] = []
        for evenly in (False, True) if any(uneven(clusters(name), shape, n) for name, n in counts.items()) else (False,):
            with suppress(NoRoute, NotDefined):  # the pipeline cannot be built
                plan = self.built.build(self.request, shape, stages, evenly)
                if fits(plan):
                    plans.append(plan)
        try:
            return [pair for pair in zip(map(float, evaluate(plans)), plans, strict=True) if pair[0] < self.cutoff]
        except NotModelled:  # the simulation decides
            return [(0.0, min(plans, key=step_seconds))]

    def _reserve(self, seconds: float) -> None:
        """Where building and simulating a plan takes long, end the search earlier, to leave time for the plans after it."""
        following = self.budgets.plans_after
        if seconds > max(self.longest, self.budgets.long_s):
            most = self.request.time_limit / following
            self.limit.reserve(min(following * seconds, most) - min(following * self.longest, most))
            self.longest = seconds

    def tries(self, usual: int) -> int:
        """Simulations in a row without a faster plan: `usual`, or what the time limit allows once it has passed: where they
        take long, one if there is but a draft, in the time of the proof."""
        late, spare = self.budgets.late_tries, self.budgets.proof_share * self.request.time_limit
        if self.longest >= self.budgets.long_s:
            late = int(self.best is None and self.limit.seconds_left > -spare)
        return min(usual, late) if self.is_over else usual

    def simulate(self, candidate: Candidate) -> bool | None:
        """Simulate a candidate and record its contention for others of its kind; return whether it is the fastest.

        None where it has no plan to simulate. One of very many devices is not built unless it may be faster by the part that
        the proof searches for (`Budgets.ranks_of_a_large_one`)."""
        ranks = candidate.shape.tp * candidate.shape.slots * len(candidate.pipeline)
        if ranks > self.budgets.ranks_of_a_large_one and candidate.seconds >= self.target:
            return False
        found = self._offered(candidate.shape, candidate.stages)
        if found:
            self.pool.learn(candidate, min(seconds for seconds, _ in found))
        return any(better for _, better in found) if found else None

    def simulate_pool(self, tries: int, doubtful: bool = False) -> None:
        """Simulate candidates of the pool, the most promising first, until `tries` in a row gave no faster plan; or, where
        `doubtful`, those that are slower than expected only by what was observed of unlike ones (`Pool.take_doubtful`).

        A long simulation counts as several tries (`Budgets.forwards_of_a_try`). Candidates that the target or the limits refuse
        are no tries; at most `Budgets.refused` of them are looked at."""
        since_improvement, refused = 0, 0
        while since_improvement < self.tries(tries) and refused < self.budgets.refused:
            candidate = self.pool.take_doubtful(self.target) if doubtful else self.pool.take(self.cutoff)
            if candidate is None:
                return
            better = self.simulate(candidate)
            if better is None and (self.request.target is not None or self.request.limits != NO_LIMITS):
                refused += 1
                continue
            since_improvement = 0 if better else since_improvement + 1 + candidate.forwards // self.budgets.forwards_of_a_try
            self.report("simulating candidates")

    def add(self, candidates: Iterable[Candidate]) -> None:
        """Add candidates to the pool, and simulate the most promising one if it is expected to be faster than the best plan."""
        candidates = list(candidates)
        self.pool.add(candidates, self.cutoff)
        unknown = self.budgets.contention
        likely = min(candidates, key=lambda candidate: self.pool.expected(candidate, unknown), default=None)
        if likely is not None and self.pool.expected(likely, unknown) < self.cutoff:
            self.simulate(likely)


def forwards(plan: Plan) -> int:
    """Forwards of one replica in a step: the work of a simulation that finds no steady state."""
    return plan.config.num_stages * max(plan.config.num_microbatches)


def doubtful(incumbent: Incumbent) -> Seconds:
    """Seconds from which the quick estimate of a variant says that it has no plan as fast as the best one."""
    return incumbent.cutoff / incumbent.budgets.first_doubt
