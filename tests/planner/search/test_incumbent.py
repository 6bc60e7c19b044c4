"""The incumbent keeps the fastest simulated plan."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.limits import Limits
from planner.placement.simulation import step
from planner.request import Request
from planner.search.budgets import Budgets
from planner.search.incumbent import Incumbent
from planner.time_limit import TimeLimit
from sim.errors import NotDefined
from sim.plan.allowed import Allowed
from sim.plan.plan import Plan
from tests import builders as make
from tests.planner import outside_torch
from tests.planner.builders import on_one_cluster, shape
from tests.planner.search.searches import candidate, incumbent, simulated

SPLITS = [(("c", 4),), (("c", 2), ("c", 2)), (("c", 1), ("c", 3)), (("c", 3), ("c", 1))]


def two_nodes(nbytes: float = 80e9) -> Request:
    """Two nodes of one device, four layers, four microbatches, with messages that take some time."""
    nics = (make.nic("ethernet", 1e7),)
    return on_one_cluster(4, 4, nodes=2, nics=nics, spec=make.device(speed=1e9, memory_bandwidth=1e12, memory=nbytes))


def test_without_a_plan_everything_is_faster():
    empty = incumbent(two_nodes())
    assert empty.cutoff == empty.target == math.inf


@given(st.permutations(SPLITS))
def test_the_fastest_plan_is_kept_whatever_comes_first(order):
    question = two_nodes()
    plans = [simulated(question, shape(), *stages) for stages in order]
    kept, best = incumbent(question), math.inf
    for plan in plans:
        kept.unproved = 7
        assert kept.keep(plan) is (step(plan) < best)
        assert kept.unproved == (0 if step(plan) < best else 7)
        best = min(best, step(plan))
        assert kept.cutoff == best
        assert kept.target == pytest.approx(best * (1 - kept.budgets.target_gap))
    assert kept.context.simulated == plans


def test_a_pipeline_is_simulated_once():
    kept = incumbent(two_nodes())
    assert kept.offer(shape(), SPLITS[1])
    assert not kept.offer(shape(), SPLITS[1])
    assert len(kept.context.simulated) == 1
    assert kept.best.made_by.strategy == "certified"


def test_a_pipeline_that_is_slower_on_an_idle_network_or_does_not_fit_is_not_simulated():
    kept = incumbent(two_nodes())
    kept.offer(shape(), SPLITS[1])
    assert not kept.offer(shape(), SPLITS[0])
    assert len(kept.context.simulated) == 1
    small = incumbent(two_nodes(outside_torch.CONTEXT))
    assert not small.offer(shape(), SPLITS[1])
    assert small.context.simulated == [] and small.best is None


def test_candidates_of_the_pool_are_simulated_until_some_in_a_row_are_no_faster():
    """Simulated in the order of their estimates, the first is the best; its two followers end the round."""
    kept = incumbent(two_nodes(), Budgets())
    found = [candidate(kept.context, shape(dp=1, schedule=name), stages) for name in ("gpipe", "1f1b") for stages in SPLITS]
    kept.pool.add(found, math.inf)
    kept.simulate_pool(2)
    assert kept.cutoff == pytest.approx(min(one.seconds for one in found), rel=0.05)
    assert len(kept.context.simulated) <= 3
    left = len(kept.pool.candidates)
    kept.simulate_pool(0)
    assert len(kept.pool.candidates) == left


@pytest.mark.parametrize(("forwards", "left"), [(1, 4), (100, 3)])
def test_a_long_simulation_counts_as_several_tries(forwards, left):
    """Six candidates look faster than they are. The first gives a plan; of eight forwards each, the others are one try each
    or, at one forward a try, nine."""
    kept = incumbent(two_nodes(), replace(Budgets(), forwards_of_a_try=forwards))
    found = [candidate(kept.context, shape(schedule=name), stages) for name in ("gpipe", "1f1b") for stages in SPLITS[:3]]
    kept.pool.add((replace(one, seconds=one.seconds / 1000, link_seconds=0.0) for one in found), math.inf)
    kept.simulate_pool(2)
    assert len(kept.pool.candidates) == left


@pytest.mark.parametrize("refused", [1, 3])
def test_candidates_that_are_refused_are_no_tries(refused):
    """Two pipelines of two stages are refused before one of one stage, which is slower on an idle network, is simulated."""
    question = replace(two_nodes(), limits=Limits((("pp", Allowed(most=1)),)))
    kept = incumbent(question, replace(Budgets(), refused=refused))
    candidates = [candidate(kept.context, shape(), stages) for stages in SPLITS[:3]]
    assert candidates[0].seconds > max(candidates[1].seconds, candidates[2].seconds)
    kept.pool.add(candidates, math.inf)
    kept.simulate_pool(1)
    assert (kept.best is not None) == (refused == 3)


def test_after_the_deadline_few_candidates_are_simulated():
    kept = incumbent(two_nodes(), Budgets(late_tries=0))
    kept.limit = TimeLimit(0.0)
    kept.pool.add([candidate(kept.context, shape(), stages) for stages in SPLITS], math.inf)
    kept.simulate_pool(9)
    assert len(kept.context.simulated) == 1, "there is no plan before"


def test_after_the_deadline_no_plan_is_simulated_where_one_takes_long():
    kept = incumbent(replace(two_nodes(), time_limit=100.0), Budgets(late_tries=2, long_s=1.0, proof_share=0.2))
    assert kept.tries(3) == 3
    kept.limit = TimeLimit(0.0)
    assert kept.tries(3) == 3, "there is no plan yet"
    kept.draft = simulated(two_nodes(), shape(), *SPLITS[0])
    assert kept.tries(3) == 2
    assert kept.tries(1) == 1
    kept.longest = 1.5
    assert kept.tries(3) == 1, "there is a draft only, and the proof's 20 s are left"
    kept.limit = TimeLimit(-21.0)
    assert kept.tries(3) == 0
    kept.limit = TimeLimit(0.0)
    kept.keep_draft()
    assert kept.tries(3) == 0


def test_a_draft_is_kept_once():
    kept = incumbent(two_nodes())
    kept.draft = simulated(two_nodes(), shape(), *SPLITS[0])
    assert kept.plan is kept.draft
    for _ in range(2):
        kept.keep_draft()
        assert kept.context.simulated == [kept.best]
        assert kept.draft is None


def test_a_search_begins_with_a_given_plan_that_fits():
    kept = incumbent(two_nodes())
    kept.offer(shape(), SPLITS[0])
    start, other = kept.best, incumbent(two_nodes())
    other.begin(start)
    assert other.cutoff == kept.cutoff
    assert not other.is_over
    other.limit = TimeLimit(0.0)
    assert other.is_over
    small = incumbent(two_nodes(outside_torch.CONTEXT))
    small.begin(replace(start, topology=small.request.topology))
    assert small.best is None
    small.limit = TimeLimit(0.0)
    assert not small.is_over, "there is no plan to return"


def test_adding_candidates_simulates_the_most_promising_one():
    kept = incumbent(two_nodes())
    kept.add(candidate(kept.context, shape(), stages) for stages in SPLITS)
    assert len(kept.context.simulated) == 1
    assert [stage.layers for stage in kept.best.stages] == [2, 2]
    assert len(kept.pool.candidates) == len(SPLITS)


def test_time_is_reserved_for_the_plans_that_follow_a_long_simulation(monkeypatch):
    """A plan that took 10 s: three more take 30 s; one that took 12 s later reserves 3 s more, up to a third of the limit."""
    kept = incumbent(replace(two_nodes(), time_limit=99.0), Budgets(long_s=1.0, plans_after=3))
    clock = [0.0]
    monkeypatch.setattr("planner.time_limit.time.monotonic", lambda: clock[0])
    kept.limit = TimeLimit(100.0)

    def slow_build(seconds: float, *_: object) -> Plan:
        clock[0] += seconds
        raise NotDefined("a pipeline that cannot be built")

    for stages, seconds, deadline in zip(SPLITS, (0.5, 10.0, 4.0, 12.0), (100.0, 70.0, 70.0, 67.0), strict=True):
        monkeypatch.setattr("planner.placement.latest_plans.build", partial(slow_build, seconds))
        assert not kept.offer(shape(), stages)
        assert clock[0] + kept.limit.seconds_left == deadline


@pytest.mark.parametrize("every_step", [False, True])
def test_a_slower_plan_is_simulated_to_the_end_only_if_every_step_is_wanted(every_step):
    question = two_nodes()
    quick, slow = (simulated(question, shape(), *stages) for stages in (SPLITS[1], SPLITS[3]))
    kept = incumbent(question)
    kept.context.every_step = every_step
    assert kept.challenge(quick) == (step(quick), True)
    seconds, better = kept.challenge(slow)
    assert not better
    assert kept.cutoff < seconds
    assert seconds == step(slow) if every_step else seconds == pytest.approx(step(slow), rel=0.2)
    assert kept.context.simulated == ([quick, slow] if every_step else [quick])
    assert kept.context.effort.times["plans simulated"] == 2


def placed(name: str, stages: int = 2, microbatches: int = 4) -> SimpleNamespace:
    """A stand-in of a plan with a number of stages and microbatches."""
    return SimpleNamespace(name=name, config=SimpleNamespace(num_stages=stages, num_microbatches=(microbatches,)))


@pytest.mark.parametrize(("first", "times"), [(1.2, 2), (1.4, 1)])
def test_the_second_placement_is_simulated_unless_half_of_the_delay_of_the_first_is_too_much(monkeypatch, first, times):
    """Steps as multiples of the best: 0.9 and 0.8 when idle; half of the first one's delay is 0.15, or 0.25 and too much."""
    kept, tried = incumbent(two_nodes(), best=simulated(two_nodes(), shape(), *SPLITS[1])), []
    best = kept.cutoff
    monkeypatch.setattr(Incumbent, "_placed", lambda *_: [(0.9 * best, placed("filled")), (0.8 * best, placed("evenly"))])
    monkeypatch.setattr(Incumbent, "challenge", lambda self, plan, _: tried.append(plan.name) or (first * best, False))
    assert not kept.offer(shape(), SPLITS[1])
    assert tried == ["filled", "evenly"][:times]


@pytest.mark.parametrize(("microbatches", "tried"), [(8000, ["slow", "fast"]), (8001, ["fast"])])
def test_long_simulations_are_run_for_gains_that_the_proof_seeks(monkeypatch, microbatches, tried):
    """Two plans of two stages that are 0.3 % and 1 % faster when idle; beyond 16,000 forwards the first is left out."""
    kept, found = incumbent(two_nodes(), best=simulated(two_nodes(), shape(), *SPLITS[1])), []
    best, below = kept.cutoff, kept.cutoff if len(tried) == 2 else kept.target
    both = [(0.997 * best, placed("slow", 2, microbatches)), (0.99 * best, placed("fast", 2, microbatches))]
    monkeypatch.setattr(Incumbent, "_placed", lambda *_: both)
    monkeypatch.setattr(Incumbent, "challenge", lambda self, plan, limit: found.append((plan.name, limit)) or (best, False))
    assert not kept.offer(shape(), SPLITS[1])
    assert found == [(name, below) for name in tried]


@pytest.mark.parametrize(("ranks", "tried"), [(1, False), (20_000, True)])
def test_a_plan_of_very_many_devices_must_be_faster_by_what_the_proof_searches_for(ranks, tried):
    """Two equal stages are faster than stages of one and three layers, but do not take half their step."""
    kept = incumbent(two_nodes(), Budgets(ranks_of_a_large_one=ranks, target_gap=0.5))
    first, second = (candidate(kept.context, shape(), stages) for stages in (SPLITS[2], SPLITS[1]))
    assert kept.simulate(first)
    assert kept.target < second.seconds < kept.cutoff
    assert kept.simulate(second) is tried
    assert (len(kept.seen) == 2) is tried
