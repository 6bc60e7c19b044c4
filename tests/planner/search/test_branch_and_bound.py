"""The proof: bounds that hold for all pipelines, and plans found on the way."""

from __future__ import annotations

import math

import pytest

from planner.bounds.relaxation import quick_bound
from planner.costs.node_classes import node_classes
from planner.placement.simulation import step
from planner.search.branch_and_bound import Proof, in_words
from planner.search.budgets import Budgets
from planner.search.improvement import Improvement
from planner.space.shape import Shape
from planner.space.shapes import searched
from planner.time_limit import TimeLimit
from tests.more import after
from tests.planner.builders import on_two_clusters, pipelines, plan_of, random_request, shape
from tests.planner.search.searches import incumbent, simulated
from tests.planner.search.test_latency import STAGES, four_clusters

SEEDS = after(4, [3, 5, 7, 19, 0, 13, 17])


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


def test_after_the_time_limit_every_layout_has_the_bound_by_total_work():
    """To compute the quick bounds of many shapes takes seconds."""
    question = random_request(3)
    kept = incumbent(question)
    kept.limit, kept.work_bound = TimeLimit(0.0), 0.25
    bases = list(searched(question))
    assert Proof(kept, Improvement(kept)).run(bases) == [0.25] * len(bases)


def test_a_search_that_ends_early_evaluates_the_variant_of_its_best_plan():
    """All its pipelines, not only the one that was simulated first."""
    question = on_two_clusters(layers=6, batch=12)
    best = min(step(simulated(question, shape(), *stages)) for stages in pipelines(question, shape()))
    kept = incumbent(question, Budgets(unproved_variants=0))
    assert kept.offer(shape(), (("a", 1), ("b", 5)))
    assert kept.best_shape == shape()
    assert kept.cutoff > 1.1 * best
    Proof(kept, Improvement(kept)).run(list(searched(question)))
    assert kept.cutoff <= best * (1 + 1e-9)


def test_a_search_that_ends_early_keeps_a_plan_whose_schedule_lists_its_warm_ups():
    """The list is for four ranks; no pipeline of other lengths has it, and the proof knows nothing of it."""
    question = four_clusters(0.05)
    kept = incumbent(question, Budgets(unproved_variants=0))
    listed = shape(schedule="zb-latency=9,6,3,0")
    assert kept.offer(listed, STAGES)
    best = kept.cutoff
    assert Proof(kept, Improvement(kept)).run(list(searched(question)))
    assert kept.best_shape == listed and kept.cutoff == best


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


@pytest.mark.parametrize("seed", SEEDS)
def test_the_layout_with_the_least_bound_is_known_where_it_is_below_the_target(seed):
    """Pinned to that layout, the search has the same bound; a finished search has no such layout."""
    question = random_request(seed)
    kept = incumbent(question, Budgets(unproved_variants=0))
    proof = Proof(kept, Improvement(kept))
    left, bases = proof.run(list(searched(question))), list(searched(question))
    least = [base for base in bases if quick_bound(kept.context, base, node_classes(kept.context, base), True) == min(left)]
    assert proof.least_layout in {in_words(base, "base") for base in least}
    whole = incumbent(question)
    finished = Proof(whole, Improvement(whole))
    finished.run(bases)
    assert (finished.least_layout == "") is (min(finished.settled) >= whole.target)


def test_a_layout_in_words_has_the_dimensions_that_are_known():
    one = Shape(2, 8, 3, "full", "interleaved", 4, 2, cp=2)
    assert in_words(one, "base") == "tp 2, dp 8, cp 2, microbatch size 3, recompute full"
    assert in_words(one, "schedule") == "tp 2, dp 8, cp 2, microbatch size 3, recompute full, interleaved (vpp 4)"
    assert in_words(one, "variant").endswith(", interleaved (vpp 4), ZeRO 2")
