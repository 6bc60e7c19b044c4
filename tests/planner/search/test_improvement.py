"""Faster plans of a variant without a proof."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

from planner.costs.node_classes import NodeClass
from planner.models.solver import NothingFound
from planner.placement.simulation import step
from planner.search.budgets import Budgets
from planner.search.improvement import Improvement
from planner.time_limit import TimeLimit
from sim.hardware.cluster import Trunk
from tests import builders as make
from tests.planner.builders import Stages, on_two_clusters, pipelines, request, shape
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


def scripted(monkeypatch: pytest.MonkeyPatch, *solutions: Stages | None) -> list[str]:
    """Replace the solver by one that gives these solutions, then none; returns the first class of each programme solved."""
    solved: list[str] = []
    left = iter(solutions)

    def solve(context: object, order: tuple[NodeClass, ...], *_: object) -> SimpleNamespace:
        solved.append(order[0].cluster.name)
        stages = next(left, None)
        if stages is None:
            raise NothingFound
        return SimpleNamespace(stages=stages, solver=f"solver {len(solved)}")

    monkeypatch.setattr("planner.search.improvement.solve", solve)
    return solved


def test_programmes_without_a_faster_plan_are_counted_over_all_variants(monkeypatch):
    """Both orders of two classes, then one of the next variant: three programmes in a row without a faster plan."""
    improvement = Improvement(incumbent(on_two_clusters(layers=6, batch=12), Budgets(programmes=3)))
    solved = scripted(monkeypatch)
    for name in ("1f1b", "gpipe", "zb-h1"):
        improvement.improve(shape(schedule=name))
    assert solved == ["a", "b", "a"]
    assert improvement.solvers == {}


def test_programmes_are_solved_for_up_to_three_classes(monkeypatch):
    """All six orders of three classes; none of four classes, which the stage search covers."""
    solved = scripted(monkeypatch)
    for names in ("abc", "abcd"):
        trunks = tuple(Trunk(pair, "ethernet", 1e6, 0.0) for pair in itertools.combinations(names, 2))
        clusters = [make.cluster(name, 1, nics=(make.nic("ethernet", 1e6),)) for name in names]
        question = request(make.fleet(*clusters, trunks=trunks), make.model(6), 12)
        Improvement(incumbent(question)).improve(shape())
        assert sorted(solved) == [*"aabbcc"]


def test_solutions_that_are_no_faster_count_as_programmes_without_any(monkeypatch):
    """All six layers on the slow device are no faster than what is estimated."""
    improvement = Improvement(incumbent(on_two_clusters(layers=6, batch=12), Budgets(programmes=2)))
    solved = scripted(monkeypatch, *[(("b", 6),)] * 9)
    for name in ("1f1b", "gpipe", "zb-h1"):
        improvement.improve(shape(schedule=name))
    assert solved == ["a", "b"]
    assert list(improvement.solvers) == ["solver 1", "solver 2"]


def test_a_faster_plan_starts_the_counts_anew(monkeypatch):
    """Without estimates there is no plan before: the first solution is the first plan, the third is faster, no other is."""
    kept = incumbent(on_two_clusters(layers=6, batch=12), Budgets(improved_estimates=0, programmes=2))
    solved = scripted(monkeypatch, (("b", 6),), (("b", 5), ("a", 1)), (("a", 4), ("b", 2)), *[(("b", 6),)] * 9)
    improvement = Improvement(kept)
    for name in ("1f1b",) * 4:
        improvement.improve(shape(schedule=name))
    assert len(solved) == 5
    assert [(d.cluster, stage.layers) for d, stage in zip(kept.best.placement, kept.best.stages, strict=True)] == [
        ("a", 4), ("b", 2)
    ]  # fmt: skip


def test_after_the_time_limit_no_programme_is_solved(monkeypatch):
    kept = incumbent(on_two_clusters(layers=6, batch=12))
    kept.limit = TimeLimit(0.0)
    solved = scripted(monkeypatch)
    Improvement(kept).improve(shape())
    assert solved == []
    assert len(kept.context.simulated) == 1, "the best estimate, so that there is a plan"
