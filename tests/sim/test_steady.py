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


@given(data=st.data())
def test_ranks_that_are_played_one_by_one_jump_alike(data: st.DataObject, plans: Make) -> None:
    plan = longer(data.draw(plans(ranks=8)), 8)
    short, whole = simulate(plan, unfolded(plan)), simulate_at_length(plan)
    assert short.step_s == pytest.approx(whole.step_s, rel=1e-9, abs=0)


@pytest.fixture
def nodes(make_fleet: Make, make_cluster: Make, make_nic: Make, make_wire: Make) -> Any:
    """Four nodes of two devices; nothing is free."""
    card = make_nic(latency=5e-6, overhead=1e-5, interference=0.1)
    return make_fleet(make_cluster(nodes=4, devices=2, nics=(card,), intra_node=make_wire(latency=1e-6)))


SETTLE_SOON = [(schedule, 1) for schedule in ("1f1b", "1f1b-deepspeed", "gpipe", "interleaved", "zb-h1", "zb-h2")]
SETTLE_SOON += [(schedule, stage) for schedule in ("1f1b", "1f1b-deepspeed", "interleaved") for stage in (2, 3)]


@pytest.mark.parametrize(("schedule", "zero_stage"), SETTLE_SOON)
def test_events_do_not_grow_with_the_number_of_microbatches(
    schedule: str, zero_stage: int, make_plan: Make, nodes: Any
) -> None:
    def played(microbatches: int) -> Timeline:
        chunks = {"vpp": 2} if schedule == "interleaved" else {}
        plan = make_plan(nodes, tp=2, pp=2, dp=2, microbatches=microbatches, schedule=schedule, zero_stage=zero_stage, **chunks)
        return simulate(plan)

    few, many = played(40), played(400)
    assert many.events == few.events
    assert len([s for s in many.spans if s.kind == "F"]) == 10 * len([s for s in few.spans if s.kind == "F"])


def test_uneven_replicas_jump_as_far_as_all_of_them_repeat(make_plan: Make, nodes: Any) -> None:
    plan = make_plan(nodes, tp=2, pp=2, dp=2, microbatches=(100, 90), schedule="1f1b")
    short, whole = simulate(plan), simulate_at_length(plan)
    assert short.events < whole.events / 2
    assert_equal(short, whole)


def test_a_short_step_is_played_to_its_end(make_plan: Make, nodes: Any) -> None:
    plan = make_plan(nodes, pp=4, microbatches=4)
    assert simulate(plan) == simulate_at_length(plan)


def test_a_state_repeats_where_everything_happened_equally_long_ago() -> None:
    earlier = Moment(10.0, 3, 7, (5,), (("busy", 0),), (-1.0, 2.0))
    assert Moment(14.0, 4, 9, (7,), (("busy", 0),), (-1.0, 2.0 + 1e-13)).repeats(earlier)
    assert not Moment(14.0, 4, 9, (7,), (("busy", 0),), (-1.0, 2.0 + 1e-11)).repeats(earlier)
    assert not Moment(14.0, 4, 9, (7,), (("busy", 1),), (-1.0, 2.0)).repeats(earlier)


def test_what_repeats_is_told_as_often_as_it_happens() -> None:
    """F0 F1 F2 and an optimizer, played; F1 comes twice more."""
    spans = [Span(0, "compute", f"F{m}", "F", float(m), m + 1.0, 0, m, "", m - 1) for m in range(3)]
    spans.append(Span(0, "compute", "optimizer", "optimizer", 3.0, 3.5, after=2))
    names = [("F", m, "") for m in range(3)] + [("optimizer", 0, None)]
    told = stretched(spans, names, [Jump(1, 2, 2, 1.0, 1)])
    assert [(s.name, s.start, s.end, s.microbatch, s.after) for s in told] == [
        ("F0", 0.0, 1.0, 0, -1),
        ("F1", 1.0, 2.0, 1, 0),
        ("F2", 2.0, 3.0, 2, 1),
        ("F3", 3.0, 4.0, 3, 2),
        ("F4", 4.0, 5.0, 4, 3),
        ("optimizer", 5.0, 5.5, -1, 4),
    ]
