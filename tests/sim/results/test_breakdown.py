"""Seconds by pipeline rank, of simulated and of measured timelines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.engine.engine import simulate
from sim.engine.timeline import Span, Timeline
from sim.errors import TimelineError
from sim.results.breakdown import KINDS, PipelineRankSeconds, Share, breakdown, facts, pipeline_rank_of, total
from tests.builders import any_plan

STEP = Timeline(
    name="tiny",
    origin="measured",
    plan_digest="",
    step_s=6.0,
    tokens=1,
    flops=1.0,
    alike=((0, 2), (1,), (3,)),
    spans=(
        Span(0, "compute", "F0", "F", 0.0, 2.0, 0, 0),
        Span(0, "send", "send F0", "send", 2.0, 3.0, 0, 0, "pp"),
        Span(0, "wait", "send F0", "exposed", 2.0, 3.0, 0, 0, "pp"),
        Span(0, "dp", "dp all_reduce", "collective", 1.0, 3.0, group="dp"),
        Span(3, "compute", "F0", "F", 0.0, 5.0, 0, 0),
        Span(3, "dp", "dp all_reduce", "collective", 1.0, 2.5, group="dp"),
        Span(3, "dp", "embedding all_reduce", "collective", 2.5, 3.0, group="embedding"),
        Span(1, "wait", "wait F0", "bubble", 0.0, 3.0, 1, 0, "pp"),
        Span(1, "compute", "B0", "B", 3.0, 5.0, 1, 0),
        Span(1, "return", "send B0", "send", 5.0, 5.25, 1, 0, "pp"),
        Span(1, "compute", "optimizer", "optimizer", 5.25, 5.5),
    ),
)


def test_seconds_are_means_over_the_ranks_of_a_pipeline_rank() -> None:
    """Ranks 0 and 2 are stored as one and count twice; what no span tells of is other."""
    assert breakdown(STEP) == (
        PipelineRankSeconds(
            0,
            3,
            (
                ("compute", Share(3.0, 2.0, 5.0)),
                ("exposed", Share(2 / 3, 0.0, 1.0)),
                ("bubble", Share(0.0, 0.0, 0.0)),
                ("other", Share(7 / 3, 1.0, 3.0)),
            ),
            (
                ("dp", Share(5.5 / 3, 1.5, 2.0)),
                ("embedding", Share(0.5 / 3, 0.0, 0.5)),
                ("pp activations", Share(2 / 3, 0.0, 1.0)),
            ),
        ),
        PipelineRankSeconds(
            1,
            1,
            (
                ("compute", Share(2.25, 2.25, 2.25)),
                ("exposed", Share(0.0, 0.0, 0.0)),
                ("bubble", Share(3.0, 3.0, 3.0)),
                ("other", Share(0.75, 0.75, 0.75)),
            ),
            (("pp gradients", Share(0.25, 0.25, 0.25)),),
        ),
    )


def test_all_pipeline_ranks_together() -> None:
    found = total(breakdown(STEP))
    assert (found.pp_rank, found.ranks) == (-1, 4)
    assert dict(found.seconds)["compute"] == Share((2.0 + 2.0 + 5.0 + 2.25) / 4, 2.0, 5.0)


def test_plain_data_say_the_same() -> None:
    found = facts(STEP)
    assert (found["step_s"], found["origin"], found["steps_s"]) == (6.0, "measured", [])
    assert found["stages"][1]["groups"] == {"pp gradients": {"mean": 0.25, "least": 0.25, "most": 0.25}}


def test_a_rank_without_a_stage_is_refused() -> None:
    idle = Timeline("t", "measured", "", 1.0, 1, 1.0, ((0,),), (Span(0, "compute", "optimizer", "optimizer", 0.0, 1.0),))
    with pytest.raises(TimelineError, match=r"^timeline 't': rank 0 has no forward or backward that names its stage$"):
        pipeline_rank_of(idle)


@given(data=st.data())
def test_a_simulated_step_is_broken_down_by_pipeline_rank(data: st.DataObject) -> None:
    plan = data.draw(any_plan(ranks=8))
    timeline = simulate(plan)
    assert pipeline_rank_of(timeline) == {group[0]: plan.config.coordinates(group[0])[2] for group in timeline.alike}
    rows = breakdown(timeline)
    assert [(row.pp_rank, row.ranks) for row in rows] == [
        (p, plan.config.tp_of(p) * plan.config.dp_cp_of(p)) for p in range(plan.config.pp)
    ]
    for row in rows:
        seconds = {kind: share.mean for kind, share in row.seconds}
        assert tuple(seconds) == KINDS
        assert sum(seconds.values()) == pytest.approx(timeline.step_s)
        assert seconds["other"] == pytest.approx(0.0, abs=1e-9 * timeline.step_s)
