"""The timeline of a step with two sets of ranks: spans of a rank of each set."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from sim.disaggregation.plan import DisaggregatedPlan
from sim.disaggregation.rounds import of_rounds
from sim.disaggregation.simulation import simulated_step
from sim.engine import timeline
from sim.results.disaggregated_timeline import disaggregated_timeline
from tests.two_rank_sets import plan, stage


def test_spans_of_both_sets_fill_the_step():
    """Compute and waits of a rank follow one another from begin to end; exchanges are beside them."""
    found = disaggregated_timeline(plan())
    assert found.step_s == pytest.approx(simulated_step(plan().stage))
    assert found.alike == ((0, 1), (2,))
    for rank in (0, 2):
        own = [span for span in found.of(rank) if span.lane in ("compute", "wait")]
        assert sum(span.seconds for span in own) == pytest.approx(found.step_s)
        assert all(one.end <= other.start + 1e-12 for one, other in itertools.pairwise(own))
    kinds = {(span.rank, span.lane, span.kind) for span in found.spans}
    assert {(0, "send", "send"), (2, "return", "send"), (0, "compute", "optimizer"), (2, "compute", "B")} <= kinds
    assert {span.name for span in found.spans if span.rank == 2 and span.lane == "return"} >= {"combine C1F0", "combine C2B1"}


def test_it_is_the_same_after_reading():
    found = disaggregated_timeline(plan())
    again = timeline.from_json(timeline.to_json(found), "timeline.json")
    assert (again.step_s, len(again.spans), again.plan_digest) == (found.step_s, len(found.spans), found.plan_digest)


def test_many_rounds_are_cut():
    whole = DisaggregatedPlan(replace(stage(batch=40), rounds=10), plan().made_by)
    found = disaggregated_timeline(whole)
    assert found.step_s == pytest.approx(simulated_step(of_rounds(whole.stage, 3)))
    assert found.tokens == 12 * 16
