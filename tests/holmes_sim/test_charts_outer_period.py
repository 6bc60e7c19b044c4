"""What the chart of outer periods shows of a timeline."""

from __future__ import annotations

from holmes_sim.charts.outer_period import drawn, drawn_as, kinds_of, steps_text
from sim.islands.outer_timeline import NETWORK, OuterSpan, OuterTimeline

TIMELINE = OuterTimeline(
    ends=((10.0, 20.0, 30.0, 40.0), (10.0, 20.0, 30.0, 40.0)),
    spans=(
        OuterSpan(0, "inner steps", 0.0, 10.0, 4),
        OuterSpan(1, "wait", 8.0, 12.0),
        OuterSpan(0, "inner steps", 10.0, 17.0, 4),
        OuterSpan(NETWORK, "exchange", 17.0, 19.0),
        OuterSpan(0, "exchange", 17.0, 20.0),
        OuterSpan(1, "inner steps", 28.0, 35.0, 1),
    ),
    events=0,
)


def test_two_periods_are_drawn_from_the_end_of_the_first_one():
    whole, spans, ends = drawn(TIMELINE)
    assert whole == 20.0
    assert spans == [
        OuterSpan(1, "wait", 0.0, 2.0),
        OuterSpan(0, "inner steps", 0.0, 7.0, 4),
        OuterSpan(NETWORK, "exchange", 7.0, 9.0),
        OuterSpan(0, "exchange", 7.0, 10.0),
        OuterSpan(1, "inner steps", 18.0, 20.0, 1),
    ]
    assert ends == [(0, 0.0), (0, 10.0), (0, 20.0), (1, 0.0), (1, 10.0), (1, 20.0)]
    assert kinds_of(spans) == ["steps", "exchange", "wait", "network"]
    assert [drawn_as(span) for span in spans] == ["wait", "steps", "network", "exchange", "steps"]


def test_steps_are_counted_in_words():
    assert (steps_text(1), steps_text(8)) == ("1 step", "8 steps")
