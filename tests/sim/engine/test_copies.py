"""Copies of a steady state are the spans that copying one after the other gives, and their sums need no copies."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import astuple
from itertools import product

import pytest

from sim.engine import steady_state
from sim.engine.copies import Copies, ExtrapolatedSpans, Jump, Name, copies, totals
from sim.engine.engine import simulate, simulate_at_length
from sim.engine.faults import NO_FAULTS, DrawnFaults
from sim.engine.parts import Indices, Parts
from sim.engine.symmetry import fold
from sim.engine.timeline import Span, Timeline, from_json, to_json
from sim.plan.plan import Plan
from sim.results.breakdown import breakdown
from sim.results.report import pipeline_ranks, predict, split
from sim.results.sums import seconds_by_rank
from tests import builders
from tests.sim.engine.test_steady_state import SCHEDULES, replica_by_replica, unlike


class Made(list[Span]):
    """Copies that were made one after the other, the first of them span number `begin`."""

    begin: int


def copied_one_by_one(spans: Parts[Span], own: Indices, names: Mapping[int, Name], jump: Jump) -> Made:
    """The copies of a jump, made in order: the specification of `copies`."""
    position = {number: index for index, number in enumerate(own)}
    period = [(spans[own[index]], names[own[index]], index - position.get(spans[own[index]].after, index))
              for index in range(jump.first, len(own))]  # fmt: skip
    made, indices, ends = Made(), list(own), {number: spans[number].end for number in own}
    made.begin = len(spans)
    for time in range(1, jump.times + 1):
        late, skipped = time * jump.seconds, time * jump.microbatches
        for (rank, lane, _, kind, start, end, stage, microbatch, group, after), (head, number, tail, rate), back in period:
            after, start = (indices[-back], ends[indices[-back]]) if back else (after, start + late)
            name = head if tail is None else f"{head}{number + skipped * rate}{tail}"
            microbatch = microbatch + skipped * rate if stage >= 0 else -1
            indices.append(made.begin + len(made))
            ends[indices[-1]] = end + late
            made.append(Span(rank, lane, name, kind, start, end + late, stage, microbatch, group, after))
    return made


def replicas(schedule: str, zero_stage: int = 1, microbatches: tuple[int, ...] = (60, 44)) -> Plan:
    """Two replicas on unlike devices, each of which is a component; ZeRO 2 and 3 join two equal ones to one component."""
    chunks = {"vpp": 2} if schedule == "interleaved" else {}
    fleet = unlike(2, 2)
    if zero_stage > 1:
        fleet, microbatches = unlike(4, 2, kinds=1), (60, 60)
    plan = builders.plan(fleet, tp=2, pp=2, dp=2, microbatches=microbatches, schedule=schedule, zero_stage=zero_stage, **chunks)
    return replica_by_replica(plan)


def slow(plan: Plan) -> DrawnFaults:
    """One device of the second replica is 1.3 times as slow."""
    return DrawnFaults(slow=((plan.placement[-1], 1.3),))


def copied(timeline: Timeline) -> list[Copies]:
    """The blocks of copies of a timeline."""
    assert isinstance(timeline.spans, ExtrapolatedSpans)
    return [part for part in timeline.spans.parts if isinstance(part, Copies)]


CASES = [(schedule, zero, faulty) for schedule, (zero, faulty) in product(SCHEDULES, ((1, False), (0, True)))]
CASES += [("1f1b", 2, False), ("interleaved", 2, False), ("zb-h1", 3, True)]


@pytest.mark.parametrize(("schedule", "zero_stage", "faulty"), CASES)
def test_copies_are_those_that_are_made_one_after_the_other(
    schedule: str, zero_stage: int, faulty: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = replicas(schedule, zero_stage)
    drawn = slow(plan) if faulty else NO_FAULTS
    lazy = simulate(plan, fold(plan, drawn), drawn)
    monkeypatch.setattr(steady_state, "copies", copied_one_by_one)
    made = simulate(plan, fold(plan, drawn), drawn)
    assert len(copied(lazy)) >= (1 if zero_stage > 1 else 2)
    assert isinstance(made.spans, tuple)
    assert (lazy.step_s, lazy.events) == (made.step_s, made.events)
    assert tuple(lazy.spans) == made.spans


@pytest.mark.parametrize(("schedule", "zero_stage", "faulty"), CASES)
def test_sums_need_no_copies(schedule: str, zero_stage: int, faulty: bool) -> None:
    """They are the sums over the spans. Each second is added up once, so that rounding is small against the step."""
    plan = replicas(schedule, zero_stage)
    drawn = slow(plan) if faulty else NO_FAULTS
    timeline = simulate(plan, fold(plan, drawn), drawn)
    sums = seconds_by_rank(timeline)
    assert "_all" not in vars(timeline.spans)
    assert sum(1 for _ in totals(timeline.spans)) < len(timeline.spans) / 2
    for rank, spans in timeline.by_rank().items():
        added: dict[tuple[str, str, str], float] = {}
        for span in spans:
            key = span.lane, span.kind, span.group
            added[key] = added.get(key, 0.0) + span.seconds
        assert sums[rank] == pytest.approx(added, rel=1e-12, abs=1e-12 * timeline.step_s)
        assert sum(split(sums[rank])) == pytest.approx(timeline.step_s, rel=1e-12)


def test_a_copy_comes_after_what_it_would_have_come_after() -> None:
    """F0 and F1 of rank 0, simulated, each with a collective beside it, and F0 of rank 1 between them; F1 is copied twice."""
    spans = Parts([Span(0, "tp", "tp all_reduce", "collective", 0.5, 1.0, -1, -1, "tp")])
    spans.append(Span(0, "compute", "F0", "F", 0.0, 1.0, 0, 0))
    spans.append(Span(1, "compute", "F0", "F", 0.0, 1.5, 0, 0))
    spans.append(Span(0, "tp", "tp all_reduce", "collective", 1.5, 2.0, -1, -1, "tp"))
    spans.append(Span(0, "compute", "F1", "F", 1.0, 2.0, 0, 1, "", 1))
    names = {3: ("tp all_reduce", 1, None, 1), 4: ("F", 1, "", 1)}
    found = copies(spans, Indices([0, 1, 3, 4]), names, Jump(2, 2, 1.0, 1))
    assert [(s.rank, s.name, s.start, s.end, s.microbatch, s.after) for s in found] == [
        (0, "tp all_reduce", 2.5, 3.0, -1, -1),
        (0, "F2", 2.0, 3.0, 2, 4),
        (0, "tp all_reduce", 3.5, 4.0, -1, -1),
        (0, "F3", 3.0, 4.0, 3, 6),
    ]
    assert found.begin == 5
    assert found.last == found[2:] == (found[2], found[3])
    assert [(span.name, seconds) for span, seconds in found.totals()] == [("tp all_reduce", 1.0), ("F1", 2.0)]


def test_a_copy_may_come_after_a_span_from_before_an_earlier_jump() -> None:
    """B1 came after a span that ended long before its period: its copies come after spans at the same distance, two of which
    are copies of the earlier jump."""
    spans, own = Parts([Span(0, "send", f"F{m}", "send", m, m + 1.0, 0, m) for m in range(2)]), Indices([0, 1])
    first = copies(spans, own, {1: ("F", 1, "", 1)}, Jump(1, 3, 1.0, 1))
    spans.join(first)
    own.join(range(2, 5))
    spans.append(Span(0, "compute", "B1", "B", 2.0, 9.0, 0, 1, "", 1))
    own.append(5)
    second = copies(spans, own, {5: ("B", 1, "", 1)}, Jump(5, 5, 1.0, 1))
    assert [(s.name, s.start, s.end, s.after) for s in second] == [
        ("B2", 3.0, 10.0, 2),
        ("B3", 4.0, 11.0, 3),
        ("B4", 5.0, 12.0, 4),
        ("B5", 9.0, 13.0, 5),
        ("B6", 10.0, 14.0, 6),
    ]
    assert [seconds for _, seconds in second.totals()] == [7.0 + 7.0 + 7.0 + 4.0 + 4.0]


def test_copies_count_the_microbatches_of_their_own_rank() -> None:
    """Where another stage computes one microbatch, this rank computes two: F2 is copied as F4 and F6."""
    spans, own = Parts([Span(0, "compute", f"F{m}", "F", m, m + 1.0, 0, m) for m in (1, 2)]), Indices([0, 1])
    found = copies(spans, own, {1: ("F", 2, "", 2)}, Jump(1, 2, 2.0, 1))
    assert [(s.name, s.microbatch, s.start) for s in found] == [("F4", 4, 4.0), ("F6", 6, 6.0)]


def test_numbers_are_found_in_all_parts() -> None:
    own = Indices([1, 4])
    own.join(range(7, 10))
    own.join(range(10, 12))
    own.append(15)
    assert [own[at] for at in range(-8, 0)] == [1, 4, 7, 8, 9, 10, 11, 15]
    assert [own.find(number) for number in (1, 4, 7, 8, 9, 10, 11, 15)] == [0, 1, 2, 3, 4, 5, 6, 7]
    assert [own.find(number) for number in (-1, 0, 3, 5, 12, 16)] == [-1] * 6
    assert own[3:6] == [8, 9, 10]
    with pytest.raises(IndexError, match="no item -9 from the end: 8 items"):
        own[-9]


@pytest.fixture(scope="module")
def extrapolated() -> Timeline:
    return simulate(replicas("1f1b"))


def test_an_extrapolated_timeline_equals_that_of_its_spans(extrapolated: Timeline) -> None:
    spans = tuple(extrapolated.spans)
    assert simulate(replicas("1f1b")) == extrapolated
    assert simulate(replicas("1f1b", microbatches=(61, 44))) != extrapolated
    assert extrapolated.spans == spans
    assert spans == extrapolated.spans
    assert extrapolated.spans != spans[1:]
    assert hash(extrapolated) == hash(simulate(replicas("1f1b")))
    assert (len(extrapolated.spans), extrapolated.spans[-1], extrapolated.spans[3:5]) == (len(spans), spans[-1], spans[3:5])


def test_an_extrapolated_timeline_is_pickled_without_its_copies(extrapolated: Timeline) -> None:
    again = pickle.loads(pickle.dumps(extrapolated))
    assert len(copied(again)) == len(copied(extrapolated))
    assert again == extrapolated


def test_a_timeline_that_is_read_again_has_all_spans(extrapolated: Timeline) -> None:
    again = from_json(to_json(extrapolated), "timeline.json")
    assert isinstance(again.spans, tuple)
    assert [span.name for span in again.spans] == [span.name for span in extrapolated.spans]


def test_reports_of_an_extrapolated_step_are_those_of_a_simulated_one() -> None:
    plan = replicas("1f1b")
    short, whole = simulate(plan), simulate_at_length(plan)
    ours, theirs = predict(plan, short), predict(plan, whole)
    for key in ("bubble_fraction", "exposed_communication_s", "tokens_per_s"):
        assert getattr(ours, key) == pytest.approx(getattr(theirs, key), rel=1e-9)
    for mine, other in zip(pipeline_ranks(plan, short), pipeline_ranks(plan, whole), strict=True):
        assert astuple(mine) == pytest.approx(astuple(other), rel=1e-9)
    for row, long in zip(breakdown(short), breakdown(whole), strict=True):
        assert {kind: share.mean for kind, share in (*row.seconds, *row.groups)} == pytest.approx(
            {kind: share.mean for kind, share in (*long.seconds, *long.groups)}, rel=1e-9, abs=1e-9 * whole.step_s
        )
