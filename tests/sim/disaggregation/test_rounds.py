"""Steps of many rounds from those of few."""

from __future__ import annotations

from sim.disaggregation.costs import step_seconds
from sim.disaggregation.rounds import extrapolated, of_rounds
from tests.sim.disaggregation.builders import machines, stage


def test_a_stage_of_fewer_rounds_has_as_large_microbatches():
    whole = stage(machines(2, 1), batch=40, rounds=5)
    fewer = of_rounds(whole, 2)
    assert (fewer.rounds, fewer.workload.global_batch_size, fewer.microbatch_size) == (2, 16, whole.microbatch_size)


def test_each_further_round_adds_as_much_as_the_last():
    """Steps of 10, 14 and 20 s for 1, 2 and 3 rounds: 6 s for each further one. Up to three rounds are evaluated in full."""
    seconds = {1: 10.0, 2: 14.0, 3: 20.0}
    for rounds, expected in ((1, 10.0), (3, 20.0), (4, 26.0), (10, 62.0)):
        whole = stage(batch=2 * rounds, rounds=rounds)
        assert extrapolated(whole, lambda one: seconds[one.rounds]) == expected


def test_few_rounds_are_not_extrapolated():
    whole = stage(batch=6, rounds=3)
    assert extrapolated(whole, step_seconds) == step_seconds(whole)
