"""Faster plans of a variant without a proof."""

from __future__ import annotations

from planner.placement.simulation import step
from planner.search.budgets import Budgets
from planner.search.improvement import Improvement
from tests.planner.builders import on_two_clusters, pipelines, shape
from tests.planner.search.searches import incumbent, simulated


def test_the_best_pipeline_of_a_small_variant_is_found():
    question = on_two_clusters(layers=6, batch=12)
    best = min(step(simulated(question, shape(), *stages)) for stages in pipelines(question, shape()))
    kept = incumbent(question)
    improvement = Improvement(kept)
    improvement.improve(shape())
    assert kept.cutoff <= best * (1 + 1e-9)


def test_without_programmes_no_solver_is_used():
    kept = incumbent(on_two_clusters(layers=6, batch=12), Budgets(programmes=0))
    improvement = Improvement(kept)
    improvement.improve(shape())
    assert improvement.solvers == {}
    assert kept.best is not None
