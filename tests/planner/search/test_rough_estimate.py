"""The bottleneck of a pipeline in words; `test_candidates` compares the seconds with the engine's."""

from __future__ import annotations

import pytest

from planner.search.rough_estimate import bottleneck, rough_seconds
from tests.planner.builders import on_one_cluster, on_two_clusters, pipelines, shape
from tests.planner.search.searches import evaluation


def test_the_slow_stage_is_the_bottleneck():
    of = evaluation(on_two_clusters(layers=6, batch=60), shape(schedule="zb-h2"))
    assert bottleneck(of, ((0, 3), (1, 3))).startswith("stage 1 (3 layers on b): ")
    assert bottleneck(of, ((0, 5), (1, 1))).startswith("stage 0 (5 layers on a): ")
    assert rough_seconds(of, ((0, 3), (1, 3))) > rough_seconds(of, ((0, 4), (1, 2)))


def test_a_bottleneck_is_told_in_begin_cycle_and_tail():
    """60 microbatches of 173 ms between 35.7 ms and 13.9 ms are 10.4 s: the end of the step."""
    of = evaluation(on_two_clusters(layers=6, batch=60), shape(schedule="zb-h2"))
    pipeline = ((0, 3), (1, 3))
    assert bottleneck(of, pipeline) == (
        "stage 1 (3 layers on b): begins at 35.7 ms, 60 microbatches of 173 ms, 13.9 ms after the last"
    )
    assert rough_seconds(of, pipeline) == pytest.approx(0.0357 + 60 * 0.173 + 0.0139, rel=5e-3)


def test_messages_are_named_where_they_take_a_share_of_the_cycle():
    """On fast devices 12,288 bytes of activations at 1e6 bytes/s take most of 19.7 ms."""
    of = evaluation(on_two_clusters(layers=2, batch=60, speeds=(2e12, 1e12)), shape())
    assert bottleneck(of, ((0, 1), (1, 1))) == (
        "stage 1 (1 layer on b): begins at 13.1 ms, 60 microbatches of 19.7 ms with messages, 9.03 ms after the last"
    )


def test_a_link_that_all_stages_cross_is_the_bottleneck():
    """a, b, a, b: to cluster b go two activations and a gradient of each of 60 microbatches, 64 tokens x 96 x 2 bytes each."""
    of = evaluation(on_two_clusters(layers=4, batch=60, speeds=(2e12, 1e12), nodes=2), shape())
    zigzag = ((0, 1), (1, 1), (0, 1), (1, 1))
    assert bottleneck(of, zigzag) == "messages of the step on the busiest link: 2.21 s"
    assert rough_seconds(of, zigzag) == pytest.approx(60 * 3 * 64 * 96 * 2 / 1e6, rel=1e-12)


def test_one_stage_takes_the_same_time_for_every_further_microbatch():
    seconds = {m: rough_seconds(evaluation(on_one_cluster(batch=m), shape()), ((0, 4),)) for m in (1, 2, 9)}
    assert seconds[2] > seconds[1] > 0
    assert seconds[9] - seconds[1] == pytest.approx(8 * (seconds[2] - seconds[1]), rel=1e-9)


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "zb-h1", "zb-h2"])
def test_an_estimate_is_no_longer_than_the_evaluated_step_but_for_the_busiest_link(schedule: str):
    question = on_two_clusters(layers=4, batch=6, nodes=2)
    of = evaluation(question, shape(schedule=schedule))
    number = {option.cluster.name: i for i, option in enumerate(of.classes)}
    every = [tuple((number[name], layers) for name, layers in stages) for stages in pipelines(question, shape())]
    assert len(every) == 28
    for seconds, pipeline in of.evaluated(every):
        assert of.link_seconds(pipeline) <= rough_seconds(of, pipeline)
        assert rough_seconds(of, pipeline) <= max(seconds, of.link_seconds(pipeline)) * (1 + 1e-9)
