"""The proof of plans with mixed stages: the same in a second process and in this one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from planner.bounds.mixed_deadline import MixedBound
from planner.placement.simulation import step
from planner.request import Request
from planner.search import mixed_proof
from planner.search.certificate import work_of_mixed
from planner.search.incumbent import Incumbent
from planner.search.mixed import is_mixed
from planner.search.mixed_proof import MixedProof, proved
from planner.time_limit import TimeLimit
from sim.plan.plan import Plan
from tests.planner.builders import on_one_cluster, random_request, shape
from tests.planner.search.searches import incumbent, simulated
from tests.planner.search.test_mixed_exhaust import of_step, steps_of_all
from tests.planner.targets import alike_replicas

QUESTION = replace(random_request(7), target=alike_replicas())


@pytest.fixture(scope="module")
def first() -> Plan:
    """Some plan that fits, as if it took twice as long as the fastest one with mixed stages."""
    return of_step(QUESTION, 2 * min(steps_of_all(QUESTION)))


@contextmanager
def begun(question: Request, first: Plan, beside: bool, seconds: float = math.inf) -> Iterator[tuple[MixedProof, Incumbent]]:
    """A proof that has begun below a first plan, in a second process or not, and the search."""
    kept = incumbent(question, best=first)
    kept.limit, kept.lower_bound = TimeLimit(seconds), math.inf
    with pytest.MonkeyPatch.context() as patch, MixedProof(kept.context) as proof:
        patch.setattr(mixed_proof, "has_free_core", lambda: beside)
        patch.setattr(mixed_proof, "BESIDE_FROM", 1)
        proof.begin(kept)
        assert proof.is_beside == beside
        yield proof, kept


def test_a_second_process_proves_what_this_one_proves_and_finds_the_same_plan(first):
    found = list[tuple[MixedBound | None, float]]()
    for beside in (True, False):
        with begun(QUESTION, first, beside) as (proof, kept):
            found.append((proof.collect(kept), kept.cutoff))
            assert kept.best is not None and is_mixed(kept.best) and kept.best.topology is QUESTION.topology
            assert not kept.limit.reached
    assert found[0] == found[1]
    assert found[0][1] < step(first)


def test_the_result_does_not_depend_on_what_the_search_finds_meanwhile(first):
    """Unless that is faster than all that the proof knows, and its bound too low: then it is done again below that."""
    with begun(QUESTION, first, False) as (proof, kept):
        bound, fastest = proof.collect(kept), kept.best
    assert bound is not None and fastest is not None
    between = as_if(first, (step(first) + step(fastest)) / 2)
    with begun(QUESTION, first, False) as (proof, kept):
        kept.keep(between)
        assert proof.collect(kept) == bound
        assert kept.cutoff == step(fastest)
    below = as_if(first, bound.seconds * 0.99)
    with begun(QUESTION, first, False) as (proof, kept):
        kept.keep(below)
        found = proof.collect(kept)
        assert found is not None and found.seconds == step(below)
        assert kept.best is below


def test_it_is_done_again_below_a_faster_plan_where_its_bound_is_too_low(first, monkeypatch):
    monkeypatch.setattr(mixed_proof, "_below_first", lambda *_: mixed_proof.Proved(MixedBound(0.0), first, False))
    faster = as_if(first, step(first) * 0.99)
    with begun(QUESTION, first, False) as (proof, kept):
        assert proof.collect(kept) == MixedBound(0.0)  # no plan is faster than the first one
        kept.keep(faster)
        again = incumbent(QUESTION, best=faster)
        assert proof.collect(kept) == proved(again)


def test_the_bound_of_total_work_is_left_where_the_time_is_over(first):
    for beside in (True, False):
        with begun(QUESTION, first, beside, 2.0 if beside else 1e-9) as (proof, kept):
            kept.limit = TimeLimit(0.0)
            assert proof.collect(kept) == work_of_mixed(kept)
            assert kept.limit.reached


def test_nothing_is_proved_on_one_cluster():
    question = on_one_cluster(nodes=2)
    with begun(question, simulated(question, shape(), ("c", 4)), False) as (proof, kept):
        assert proof.collect(kept) is None


def as_if(plan: Plan, seconds: float) -> Plan:
    """The plan as if its step had so many seconds."""
    assert plan.prediction is not None
    return plan.annotated(prediction=replace(plan.prediction, step_s=seconds))
