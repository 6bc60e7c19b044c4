"""The proof: bounds that hold for all pipelines, and plans found on the way."""

from __future__ import annotations

import math

import pytest

from planner.bounds.relaxation import quick_bound
from planner.costs.node_classes import node_classes
from planner.placement.simulation import step
from planner.search.branch_and_bound import Proof
from planner.search.budgets import Budgets
from planner.search.improvement import Improvement
from planner.space.shapes import searched
from planner.time_limit import TimeLimit
from tests.planner.builders import plan_of, random_request
from tests.planner.search.searches import incumbent

SEEDS = [0, 3, 5, 7, 13, 17, 19]


@pytest.mark.parametrize("seed", SEEDS)
def test_from_no_plan_the_proof_finds_the_best_one_and_a_bound_within_the_target_gap(seed):
    question = random_request(seed)
    best = step(plan_of(question))
    kept = incumbent(question)
    proof = Proof(kept, Improvement(kept))
    left = proof.run(list(searched(question)))
    bound = min([*proof.settled, *left])
    assert bound <= best * (1 + 1e-9)
    assert all(one >= kept.target for one in left)
    assert kept.cutoff <= best / (1 - kept.budgets.target_gap) * (1 + 1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_search_that_may_do_nothing_leaves_the_quick_bounds_open(seed):
    question = random_request(seed)
    kept = incumbent(question, Budgets(unproved_variants=0))
    proof, bases = Proof(kept, Improvement(kept)), list(searched(question))
    expected = [quick_bound(kept.context, base, node_classes(kept.context, base), True) for base in bases]
    assert sorted(proof.run(bases)) == sorted(expected)
    assert proof.settled == []
    assert kept.best is None


@pytest.mark.parametrize("seed", SEEDS)
def test_the_bound_of_an_ended_search_holds_too(seed):
    """After one variant that could not change the certificate, or after the time limit."""
    question = random_request(seed)
    best = step(plan_of(question))
    for budgets, seconds in ((Budgets(unproved_variants=1), math.inf), (Budgets(), 0.0)):
        kept = incumbent(question, budgets)
        kept.limit = TimeLimit(seconds)
        proof = Proof(kept, Improvement(kept))
        left = proof.run(list(searched(question)))
        assert min([*proof.settled, *left]) <= best * (1 + 1e-9)
        assert seconds == math.inf or proof.settled == []
