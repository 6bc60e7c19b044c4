"""The bottleneck of a pipeline in words; `test_candidates` compares the seconds with the engine's."""

from __future__ import annotations

from planner.search.rough_estimate import bottleneck, rough_seconds
from tests.planner.builders import on_two_clusters, shape
from tests.planner.search.searches import evaluation


def test_the_slow_stage_is_the_bottleneck():
    of = evaluation(on_two_clusters(layers=6, batch=60), shape(schedule="zb-h2"))
    assert bottleneck(of, ((0, 3), (1, 3))).startswith("stage 1 (3 layers on b): ")
    assert bottleneck(of, ((0, 5), (1, 1))).startswith("stage 0 (5 layers on a): ")
    assert rough_seconds(of, ((0, 3), (1, 3))) > rough_seconds(of, ((0, 4), (1, 2)))
