"""Limits of the search for unlike pipelines."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, astuple, replace
from pathlib import Path

import pytest

from planner.pipelines.budgets import BRIEF, USUAL, PipelineBudgets, Work
from planner.pipelines.parts import parts
from planner.pipelines.search import best
from planner.request import Request
from planner.time_limit import TimeLimit
from sim.formats.topology import load
from tests.planner.pipelines.fleets import two_kinds

HYBRID = Path("topologies/holmes-hybrid-4.yaml")


def test_a_brief_search_does_no_more_than_the_usual_one():
    assert all(0 <= brief <= usual for brief, usual in zip(astuple(BRIEF), astuple(USUAL), strict=True))


def test_budgets_do_not_change():
    with pytest.raises(FrozenInstanceError):
        USUAL.columns = 1


def test_a_brief_search_plans_single_nodes_and_whole_clusters_alone():
    """Of the fleet of two and one nodes, the part of one node of each cluster is left out; it finds the plan on the others."""
    asked, planned = two_kinds(batch=16), list[str]()
    found = best(asked, 1.0, progress=planned.append, budgets=BRIEF)
    assert found is not None
    assert found.step_s <= 1.05 * best(asked, 1.0).step_s
    assert (1, 1) in parts(asked)
    assert set(planned) == {f"{what} on {where}" for what in ("a pipeline", "pipelines") for where in ("2 x a", "1 x b")} | {
        "a pipeline on 1 x a"
    }


def test_a_pipeline_on_each_cluster_is_found_soon():
    """Two stages of eight on each cluster under zb-h2, which the usual budgets find as well, in six times the CPU seconds."""
    topology = load(HYBRID)
    found = best(Request(topology, topology.workload, time_limit=math.inf), 8.5, budgets=BRIEF)
    assert found is not None
    assert found.step_s == pytest.approx(8.0897, abs=1e-3)
    assert [one.config.pp for one in found.plan.pipelines] == [8, 8]


def test_columns_are_counted():
    """With one search for a column, one part is planned."""
    found = list[str]()
    best(two_kinds(batch=16), 1.0, progress=found.append, budgets=replace(BRIEF, columns=1))
    assert len(found) == 1


def test_a_search_ends_when_its_events_are_counted():
    """One simulated plan has more than one event, so that no second one is simulated."""
    asked = two_kinds(batch=16)
    few, many = (best(asked, 1.0, budgets=PipelineBudgets(events=number)) for number in (1, 1_000_000))
    assert few is not None
    assert many is not None
    assert few.step_s > many.step_s
    assert few.columns <= many.columns


def test_work_is_over_by_its_events_or_its_time():
    work = Work(TimeLimit(math.inf), PipelineBudgets(events=5))
    assert not work.is_over()
    work.events = 5
    assert work.is_over()
    assert not work.limit.reached
    assert Work(TimeLimit(0.0)).is_over()
