"""A step that repeats itself is told and not played, and nobody can see it in the timeline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from sim.engine import simulate, simulate_at_length
from sim.explain import critical_path
from sim.folding import unfolded
from sim.plan import Plan
from sim.program import Action
from sim.steady import Jump, Moment, stretched
from sim.timeline import Span, Timeline

Make = Callable[..., Any]


def longer(plan: Plan, times: int) -> Plan:
    """The same plan with so many times the microbatches."""
    numbers = tuple(number * times for number in plan.config.num_microbatches)
    workload = replace(plan.workload, global_batch_size=plan.workload.global_batch_size * times)
    return replace(plan, config=replace(plan.config, num_microbatches=numbers), workload=workload)


def told(timeline: Timeline) -> list[tuple[Any, ...]]:
    """What happened, without the times; spans shorter than a billionth of the step are rounding of equal times."""
    long = (span for span in timeline.spans if span.seconds > 1e-9 * timeline.step_s)
    return sorted((s.rank, s.lane, s.kind, s.name, s.stage, s.microbatch, s.group, s.start, s.end) for s in long)


def assert_equal(short: Timeline, whole: Timeline) -> None:
    """All spans are there, at the same times."""
    assert short.step_s == pytest.approx(whole.step_s, rel=1e-9, abs=0)
    ours, theirs = told(short), told(whole)
    assert [row[:-2] for row in ours] == [row[:-2] for row in theirs]
    at, there = ([time for row in rows for time in row[-2:]] for rows in (ours, theirs))
    assert at == pytest.approx(there, rel=1e-9, abs=1e-9 * whole.step_s)


def assert_is_led(timeline: Timeline) -> None:
    """Every span begins exactly when the one that it came after ends, and the critical path fills the step."""
    spans = timeline.spans
    assert all(spans[span.after].end == span.start for span in spans if span.after >= 0)
    assert all(0 <= span.start < span.end <= timeline.step_s for span in spans)
    path = critical_path(timeline)
    assert path[0].start == 0
    assert path[-1].end == timeline.step_s


@given(data=st.data())
def test_a_step_that_jumps_equals_one_that_is_played_at_length(data: st.DataObject, plans: Make) -> None:
    plan = longer(data.draw(plans(ranks=16)), data.draw(st.integers(8, 20)))
    short, whole = simulate(plan), simulate_at_length(plan)
    event(f"{plan.config.schedule}: {'jumped' if short.events < whole.events else 'played'}")
    assert_equal(short, whole)
    assert_is_led(short)
    assert len(critical_path(short)) == len(critical_path(whole))
