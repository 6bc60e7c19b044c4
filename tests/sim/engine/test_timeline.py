"""timeline.json is a Chrome trace of all spans, with the facts that reports need in its metadata."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.engine.engine import simulate
from sim.engine.timeline import LANES, PeakBytes, Span, Timeline, from_json, to_json
from sim.errors import TimelineError
from sim.plan.plan import MadeBy
from tests import builders
from tests.builders import any_plan, cluster, fleet, nic

TINY = Timeline(
    name="tiny gpt",
    origin="simulated",
    plan_digest="0123456789abcdef",
    step_s=3e-6,
    tokens=64,
    flops=1e6,
    alike=((0, 2), (1,)),
    spans=(
        Span(0, "compute", "F0", "F", 0.0, 2e-6, 0, 0),
        Span(0, "wait", "recv B0", "exposed", 2e-6, 3e-6, 0, 0),
        Span(1, "wait", "end of step", "bubble", 0.0, 3e-6),
    ),
)


def events(timeline: Timeline) -> list[dict[str, Any]]:
    return json.loads(to_json(timeline))["traceEvents"]


def test_the_metadata_of_a_trace_describes_it() -> None:
    trace = json.loads(to_json(TINY))
    assert trace["metadata"] == {
        "format": "holmes-sim/timeline/1",
        "name": "tiny gpt",
        "origin": "simulated",
        "plan_digest": "0123456789abcdef",
        "step_s": 3e-6,
        "tokens": 64,
        "flops": 1e6,
        "alike": [[0, 2], [1]],
    }
    assert trace["displayTimeUnit"] == "ms"


def test_a_span_is_a_complete_event_in_microseconds() -> None:
    first, second, third = (event for event in events(TINY) if event["ph"] == "X")
    assert first == {
        "ph": "X", "name": "F0", "cat": "F", "pid": 0, "tid": 0, "ts": 0.0, "dur": pytest.approx(2.0),
        "args": {"stage": 0, "microbatch": 0},
    }  # fmt: skip
    assert (second["ts"], second["dur"], second["tid"]) == (pytest.approx(2.0), pytest.approx(1.0), LANES.index("wait"))
    assert third["args"] == {}


def test_processes_and_threads_have_names_for_people() -> None:
    named = {(event["name"], event["pid"], event["tid"]): event["args"] for event in events(TINY) if event["ph"] == "M"}
    assert named["process_name", 0, 0] == {"name": "rank 0 and 1 alike"}
    assert named["process_name", 1, 0] == {"name": "rank 1"}
    assert [named["thread_name", 0, tid]["name"] for tid in range(len(LANES))] == list(LANES)


def test_a_rank_that_is_not_shown_has_the_spans_of_its_representative() -> None:
    assert [span.name for span in TINY.of(2)] == ["F0", "recv B0"]


def test_a_trace_is_one_line_of_json() -> None:
    assert to_json(TINY).endswith("}\n")
    assert to_json(TINY).count("\n") == 1


def overlaps(timeline: Timeline) -> list[tuple[int, str, str, str]]:
    """(rank, lane, earlier, later) of spans that overlap on one lane of a rank by more than rounding."""
    threads: dict[tuple[int, str], list[Span]] = defaultdict(list)
    for span in sorted(timeline.spans, key=lambda span: span.start):
        threads[span.rank, span.lane].append(span)
    dust = 1e-9 * timeline.step_s
    return [
        (rank, lane, a.name, b.name)
        for (rank, lane), spans in threads.items()
        for a, b in pairwise(spans)
        if a.end > b.start + dust
    ]


@given(data=st.data())
def test_spans_of_one_thread_do_not_overlap(data: st.DataObject) -> None:
    """A viewer draws overlapping spans of one thread as nested calls, which they are not. Slices of a message to several ranks
    of a stage with another tp, which travel at the same time, do overlap."""
    assert overlaps(simulate(data.draw(any_plan(ranks=16, unlike=False)))) == []


def test_messages_to_both_neighbours_at_once_do_not_share_a_thread() -> None:
    """Under a schedule that overlaps its sends, the middle pipeline rank sends activations and gradients at the same time."""
    machines = fleet(cluster(nodes=3, nics=(nic(bandwidth=1e8),)))
    assert overlaps(simulate(builders.plan(machines, pp=3, microbatches=6, schedule="interleaved"))) == []


@given(data=st.data())
def test_every_span_lies_within_the_step(data: st.DataObject) -> None:
    timeline = simulate(data.draw(any_plan(ranks=16)))
    assert all(0 <= span.start < span.end <= timeline.step_s for span in timeline.spans)
    assert {span.lane for span in timeline.spans} <= set(LANES)


@given(data=st.data())
def test_every_rank_is_equivalent_to_a_simulated_one(data: st.DataObject) -> None:
    plan = data.draw(any_plan(ranks=16))
    timeline = simulate(plan)
    assert sorted(rank for group in timeline.alike for rank in group) == list(range(plan.config.world_size))
    assert {span.rank for span in timeline.spans} == {group[0] for group in timeline.alike}


def test_the_digest_depends_on_the_plan_but_not_on_its_maker() -> None:
    plan = builders.plan(fleet(cluster(nodes=2)), pp=2)
    other = builders.plan(fleet(cluster(nodes=2)), pp=2, microbatches=2)
    digest = simulate(plan).plan_digest
    assert len(digest) == 16
    assert simulate(replace(plan, made_by=MadeBy("someone else", "2"))).plan_digest == digest
    assert simulate(other).plan_digest != digest


# there and back


MEASURED = replace(TINY, origin="measured", steps_s=(3e-6, 2.9e-6, 3.4e-6), scale=20.0, compute="real", computed_on=("CPU",))
PEAKS = tuple(PeakBytes(1e9 * (1 + rank), 2e9, 7.5e8) for group in TINY.alike for rank in group)


def test_a_measured_trace_records_what_was_timed_and_how() -> None:
    header = json.loads(to_json(MEASURED))["metadata"]
    assert {key: header[key] for key in ("origin", "steps_s", "scale", "compute", "computed_on")} == {
        "origin": "measured", "steps_s": [3e-6, 2.9e-6, 3.4e-6], "scale": 20.0, "compute": "real",
        "computed_on": ["CPU"],
    }  # fmt: skip


def test_a_trace_has_the_memory_of_each_rank_or_of_none() -> None:
    trace = json.loads(to_json(replace(MEASURED, peak_bytes=PEAKS)))
    assert trace["metadata"]["peak_bytes"][0] == [1e9, 2e9, 7.5e8]
    trace["metadata"]["peak_bytes"].append([1.0, 1.0, 1.0])
    with pytest.raises(
        TimelineError, match=f"metadata.peak_bytes: {len(PEAKS) + 1} given; one for each of the {len(PEAKS)} ranks"
    ):
        from_json(json.dumps(trace), "timeline.json")


def test_a_span_names_its_group() -> None:
    timeline = replace(TINY, spans=(Span(0, "dp", "dp all_reduce", "collective", 0.0, 1e-6, group="embedding"),))
    (event,) = (event for event in events(timeline) if event["ph"] == "X")
    assert event["args"] == {"group": "embedding"}


def in_microseconds(timeline: Timeline) -> Timeline:
    """Times rounded to a millionth of a microsecond, and what a trace does not hold left out."""
    spans = tuple(s._replace(start=round(s.start, 12), end=round(s.end, 12), after=-1) for s in timeline.spans)
    return replace(timeline, spans=spans, events=0)


@given(data=st.data())
def test_a_trace_that_is_read_again_is_the_same_timeline(data: st.DataObject) -> None:
    """But for rounding, what each span came after (`Span.after`) and the count of the engine's events."""
    steps = tuple(data.draw(st.lists(st.floats(1e-6, 1e3), max_size=3)))
    measured = {"origin": "measured", "steps_s": steps, "scale": data.draw(st.floats(0.1, 1e4)), "compute": "real"}
    plan = data.draw(any_plan(ranks=8))
    measured["peak_bytes"] = (PeakBytes(3e9, 4e9, 7.5e8),) * plan.config.world_size
    measured["cpu_s"] = (0.25,) * plan.config.world_size
    timeline = replace(simulate(plan), **data.draw(st.sampled_from([{}, measured])))
    again = from_json(to_json(timeline), "timeline.json")
    assert in_microseconds(again) == in_microseconds(timeline)


def broken(**changes: Any) -> str:
    """A trace with other values in its metadata, or in its first span where a key is one of those."""
    trace = json.loads(to_json(MEASURED))
    first = next(event for event in trace["traceEvents"] if event["ph"] == "X")
    for key, value in changes.items():
        (first if key in first else trace["metadata"])[key] = value
    return json.dumps(trace)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("{", "t.json:1: not well-formed JSON: Expecting property name enclosed in double quotes (column 2)"),
        ('{"metadata": {}, "metadata": {}}', "t.json:1: not well-formed JSON: a key is given twice"),
        (
            '{"format": "holmes-sim/plan/1"}',
            "t.json: not a timeline: the keys metadata and traceEvents are missing (this file is holmes-sim/plan/1)",
        ),
        ("[]", "t.json:1: a mapping of keys is expected here, not list"),
        ('{"traceEvents": []}', "t.json:1: metadata: this key is missing"),
        (broken(origin="dreamt"), "t.json:1: metadata.origin: 'dreamt' is unknown; known: 'simulated' or 'measured'"),
        (broken(step_s=0.0), "t.json:1: metadata.step_s: 0.0: input should be greater than 0"),
        (broken(scale=float("nan")), "t.json:1: metadata.scale: nan: input should be a finite number"),
        (broken(scael=2.0), "t.json:1: metadata.scael: unknown key; did you mean 'scale'?"),
        (
            broken(alike=[[0, 1]]),
            "t.json:1: traceEvents[24].pid: 1: a rank that is the first of a list of metadata.alike is expected",
        ),
        (broken(alike=[[0, 2]]), "t.json:1: metadata.alike: its ranks are [0, 2]; each rank from 0 on must be in one list"),
        (broken(tid=9), "t.json:1: traceEvents[22].tid: 9: input should be less than 9"),
        (broken(dur=-1.0), "t.json:1: traceEvents[22].dur: -1.0: input should be greater than or equal to 0"),
        (broken(dur="long"), "t.json:1: traceEvents[22].dur: 'long' is not a number"),
    ],
)  # fmt: skip
def test_a_broken_trace_is_one_line(text: str, line: str) -> None:
    with pytest.raises(TimelineError) as caught:
        from_json(text, "t.json")
    assert str(caught.value) == line


def test_a_trace_that_somebody_indented_has_lines() -> None:
    text = json.dumps(json.loads(broken(scale=-2)), indent=1)
    line = next(number for number, row in enumerate(text.splitlines(), 1) if '"scale"' in row)
    with pytest.raises(TimelineError, match=f"^t.json:{line}: metadata.scale: -2: input should be greater than 0$"):
        from_json(text, "t.json")
