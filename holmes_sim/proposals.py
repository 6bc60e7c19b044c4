"""Plans to measure: a folder with a launch of each, as `holmes-sim plan --shortlist` writes it (`holmes_sim.layout_choice`).

Candidates are the plan of the search and the fastest plan of each other layout that the launch target can express
(`planner.search.alternatives`). Plans of measured runs join them, so that a second list takes the first one's times into
account."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from holmes_sim import exporters, layout_choice
from holmes_sim.intervals import step_range
from holmes_sim.layout_choice import Belief, Proposal
from holmes_sim.pooled_fit import USUAL
from holmes_sim.posterior import sensitivities
from holmes_sim.runs import Run, default_topology, without_stack
from planner import api
from planner.costs.context import PlanningContext
from planner.placement.simulation import simulate_plan, step
from planner.request import Request
from planner.search.alternatives import Layout, alternatives, layout_of
from planner.time_limit import SOON, TimeLimit
from sim.errors import HolmesError, NotSupported, OptionError
from sim.formats.config_facts import config_facts
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from sim.units import Seconds

FORMAT = "holmes-sim/shortlist/1"
CANDIDATES = 32
"""Plans among which the list is chosen. Guess; more takes longer: each is simulated, and evaluated with seven stacks."""
NEAR = 1.3
"""Largest ratio of a candidate's step to the fastest candidate's. Guess; the simulator seldom errs by more between layouts."""
AFTERWARDS = 0.5
"""Share of the time limit that the search for the plan leaves for the candidates beside it (a guess)."""
COMPARED = ("tp", "pp", "dp", "cp", "ep", "microbatch_size", "recompute")
"""Keys of the configuration in which a plan of a list is compared with the first one."""
WITHIN_80 = 1.2816
"""Standard deviations on both sides of the mean of a normal variable between which it is with a probability of 80 %."""


@dataclass(frozen=True, slots=True)
class Proposed:
    """A simulated plan to measure.

    `expected_s` is its expected step, `range_s` the one of 80 % of runs: those of the simulator before any plan was measured,
    then those of the distribution after the measurements. `share`: draws in which it is the fastest of the list and of the
    measured plans. `why` says in words why it is on the list."""

    plan: Plan
    share: float
    expected_s: Seconds
    range_s: tuple[Seconds, Seconds]
    why: str

    @property
    def step_s(self) -> Seconds:
        """Predicted seconds of a step."""
        return step(self.plan)


@dataclass(frozen=True, slots=True)
class Proposals:
    """Plans to measure for a launch target, the first choice first.

    `candidates` is the number of layouts among which they were chosen, `measured` that of measured ones. `best` is the plan
    with the least expected step after these, `best_s` that step, and `best_name` its folder, empty if it was not measured.
    `left_out` says why the target cannot express the plan of the search; empty if it can."""

    target: str
    plans: tuple[Proposed, ...]
    candidates: int
    measured: int
    best: Plan
    best_s: Seconds
    best_name: str
    left_out: str = ""

    def facts(self) -> dict[str, Any]:
        """Plain data (format holmes-sim/shortlist/1), as `holmes-sim plan --shortlist --json` prints it."""
        rows = [
            {
                "folder": str(number),
                "step_s": one.step_s,
                "expected_s": one.expected_s,
                "expected_range_s": list(one.range_s),
                "share": one.share,
                "why": one.why,
                "config": config_facts(one.plan.config),
            }
            for number, one in enumerate(self.plans, 1)
        ]
        best = {"folder": self.best_name, "expected_s": self.best_s, "config": config_facts(self.best.config)}
        found = {"format": FORMAT, "target": self.target, "plans": rows, "candidates": self.candidates}
        return found | {"measured": self.measured, "best": best, "left_out": self.left_out}


def proposals(
    request: Request,
    number: int,
    target: str,
    runs: Sequence[Run] = (),
    progress: Callable[[str], None] = lambda text: None,
) -> Proposals:
    """The plans to measure, at most `number`; `runs` are measured ones of the same topology and workload.

    Raises NotSupported if the target can express no layout, HolmesError if a run has another workload or fleet or there is
    nothing left to measure, Infeasible if no plan fits."""
    if request.limits.cost is not None:
        raise OptionError("require.cost: a shortlist has plans of any cost; leave it out, or require rent or devices")
    if request.limits.training is not None:
        raise OptionError("require.days: a shortlist has plans that take any time; leave it out")
    known, names, beyond = _plans(request, number, target, runs, progress)
    progress(f"{len(known)} layouts with {1 + len(USUAL)} stacks")
    bare, stack = [without_stack(plan) for plan in known], request.topology.stack
    slopes = sensitivities(bare, stack, USUAL, np.zeros(len(USUAL)))
    belief = layout_choice.belief([plan.config for plan in known], np.log([step(plan) for plan in known]), slopes)
    measured = {i: math.log(run.step_s) for i, run in enumerate(names) if run is not None and run.step_s is not None}
    failed = [i for i, run in enumerate(names) if run is not None and run.failed]
    chosen = layout_choice.propose(belief, number, measured, failed)
    if not chosen:
        raise HolmesError("nothing is left to measure: every layout that was found has been measured, or failed")
    after = belief.given(measured)
    first = known[chosen[0].index].config
    found = tuple(_proposed(known[one.index], one, after if measured else None, first) for one in chosen)
    best = layout_choice.best(belief, measured, failed)
    expected = measured.get(best, float(after.mean[best]))
    run = names[best]
    last = known[best], math.exp(expected), run.name if run else ""
    return Proposals(target, found, len(known), len(measured), *last, beyond)


def _proposed(plan: Plan, one: Proposal, after: Belief | None, first: ParallelConfig) -> Proposed:
    """A plan with its expected step and range: the simulator's, or those of the distribution `after` measurements."""
    why = _why(one.share, plan.config, first)
    if after is None:
        expected = step_range(step(plan), plan)
        return Proposed(plan, one.share, step(plan), (expected.low_s, expected.high_s), why)
    mean, deviation = float(after.mean[one.index]), math.sqrt(float(after.covariance[one.index, one.index]))
    low, high = (math.exp(mean + sign * WITHIN_80 * deviation) for sign in (-1, 1))
    return Proposed(plan, one.share, math.exp(mean), (low, high), why)


def _why(share: float, own: ParallelConfig, first: ParallelConfig) -> str:
    """Why a plan is on the list: how often it is the fastest, and how it differs from the first one."""
    chance = f"fastest in {share:.0%} of draws"
    if own is first:
        return f"least expected step; {chance}"
    other = [f"{key} {getattr(own, key)}" for key in COMPARED if getattr(own, key) != getattr(first, key)]
    return f"{chance}; {', '.join(other).replace('microbatch_size', 'mb')}"


def _plans(
    request: Request, number: int, target: str, runs: Sequence[Run], progress: Callable[[str], None]
) -> tuple[list[Plan], list[Run | None], str]:
    """(the fastest simulated plan of each layout, its run if there is one, why the plan of the search is left out). Where the
    time is up, so many layouts are enough."""
    unsupported = functools.partial(exporters.unsupported, target)
    for run in runs:
        _check(run, request)
    limit, context = TimeLimit(request.time_limit), PlanningContext(request, progress)
    context.limit.reserve(AFTERWARDS * request.time_limit if math.isfinite(request.time_limit) else 0.0)
    searched = api.plan(request, context=context)
    reason = next(iter(unsupported(searched)), "")
    later = limit.at_least(SOON)
    others = alternatives(request, context, CANDIDATES, NEAR, lambda plan: not any(True for _ in unsupported(plan)), later)
    plans: dict[Layout, Plan] = {} if reason else {_layout(searched): searched}
    for index, plan in enumerate(others, 1):
        if len(plans) >= number and limit.is_up():
            break
        progress(f"simulating {index} of {len(others)} layouts")
        simulated = simulate_plan(plan)
        if _layout(plan) not in plans or step(simulated) < step(plans[_layout(plan)]):
            plans[_layout(plan)] = simulated
    if not plans:
        raise NotSupported(f"{target} cannot express {reason}")
    tried = {_layout(run.plan): run for run in runs if run.step_s is not None or run.failed}
    plans |= {layout: _simulated(run.plan, request) for layout, run in tried.items()}
    return list(plans.values()), [tried.get(layout) for layout in plans], reason and f"{step(searched):.4g} s: {reason}"


def _simulated(plan: Plan, request: Request) -> Plan:
    """The plan of a run with the software stack of the request, simulated."""
    return simulate_plan(replace(without_stack(plan), topology=request.topology))


def _layout(plan: Plan) -> Layout:
    return layout_of(plan.config, plan.config.pp)


def _check(run: Run, request: Request) -> None:
    """Raise HolmesError if a run is of another workload or on other machines."""
    plan = run.plan
    if plan.workload != request.workload:
        raise HolmesError(f"{run.name}: its plan trains another workload than this topology's; leave this folder out")
    if default_topology(plan.topology).fleet != default_topology(request.topology).fleet:
        raise HolmesError(f"{run.name}: its plan is for other machines than this topology's; leave this folder out")
