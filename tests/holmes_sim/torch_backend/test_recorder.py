"""The notes of all ranks say what a wait was for."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from sim.engine.timeline import Span
from sim.plan.program import Action

pytest.importorskip("torch")

from holmes_sim.torch_backend import recorder as recorder_module
from holmes_sim.torch_backend.executor import in_backward
from holmes_sim.torch_backend.recorder import Event, Recorder, spans

MESSAGE = ("pp", 0, 1, "F", 0, 0)
RING = ("dp", "beside", 0, 0)


def test_a_message_and_the_wait_for_it() -> None:
    """Rank 1, whose clock is 10 s behind, waits from 0 to 5 for what rank 0 computes until 3 and sends until 5."""
    sender = [
        Event("compute", "compute", "F0", "F", 100.0, 103.0, 0, 0, "", ()),
        Event("wait", "wait", "send F0", "exposed", 103.0, 104.0, 0, 0, "pp", MESSAGE),
        Event("comm", "send", "send F0", "send", 103.0, 104.0, 0, 0, "pp", MESSAGE),
    ]
    receiver = [
        Event("wait", "wait", "recv F0", "exposed", 90.0, 95.0, 0, 0, "pp", MESSAGE),
        Event("compute", "compute", "F0", "F", 95.0, 97.0, 1, 0, "", ()),
        Event("comm", "send", "recv F0", "recv", 90.0, 95.0, 0, 0, "pp", MESSAGE),
    ]
    assert spans([sender, receiver], [0.0, 10.0], 100.0, 108.0) == (
        Span(0, "compute", "F0", "F", 0.0, 3.0, 0, 0),
        Span(1, "wait", "wait recv F0", "bubble", 0.0, 3.0, 0, 0, "pp"),
        Span(0, "wait", "send F0", "exposed", 3.0, 4.0, 0, 0, "pp"),
        Span(0, "send", "send F0", "send", 3.0, 5.0, 0, 0, "pp"),
        Span(1, "wait", "recv F0", "exposed", 3.0, 5.0, 0, 0, "pp"),
        Span(0, "wait", "end of step", "bubble", 4.0, 8.0),
        Span(1, "compute", "F0", "F", 5.0, 7.0, 1, 0),
        Span(1, "wait", "end of step", "bubble", 7.0, 8.0),
    )


def test_a_collective_begins_when_the_last_rank_comes() -> None:
    early = [
        Event("wait", "wait", "dp all_gather", "exposed", 1.0, 4.0, -1, -1, "dp", RING),
        Event("comm", "dp", "dp all_gather", "collective", 1.0, 4.0, -1, -1, "dp", RING),
    ]
    late = [Event("comm", "dp", "dp all_gather", "collective", 3.0, 4.0, -1, -1, "dp", RING)]
    assert spans([early, late], [0.0, 0.0], 0.0, 4.0) == (
        Span(0, "wait", "wait dp all_gather", "bubble", 1.0, 3.0, -1, -1, "dp"),
        Span(0, "wait", "dp all_gather", "exposed", 3.0, 4.0, -1, -1, "dp"),
        Span(0, "dp", "dp all_gather", "collective", 3.0, 4.0, -1, -1, "dp"),
        Span(1, "dp", "dp all_gather", "collective", 3.0, 4.0, -1, -1, "dp"),
    )


def test_an_exchange_that_ends_before_the_last_rank_comes_is_kept() -> None:
    """A rank that receives no rows from the last one does not wait for it."""
    key = ("ep", "within", 0, 0)
    early = [Event("comm", "ep", "ep all_to_all", "collective", 1.0, 1.5, -1, -1, "ep", key)]
    late = [Event("comm", "ep", "ep all_to_all", "collective", 2.0, 3.0, -1, -1, "ep", key)]
    found = [(span.rank, span.start, span.end) for span in spans([early, late], [0.0, 0.0], 0.0, 3.0) if span.lane == "ep"]
    assert found == [(0, 1.0, 1.5), (1, 2.0, 3.0)]


def test_compute_is_cut_around_an_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute begins at 10 s and ends at 13 s on the clock of the rank; a collective takes the second second."""
    clock = iter((10.0, 13.0))
    monkeypatch.setattr(recorder_module, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    recorder = Recorder()
    recorder.begin(Action("F", 2, 5))
    recorder.layer_collective("tp", "all_reduce", 11.0, 12.0, ("tp", "within", 0, 0))
    recorder.end()
    kinds = [(event.lane, event.start, event.end) for event in recorder.events]
    assert kinds == [("compute", 10.0, 11.0), ("tp", 11.0, 12.0), ("wait", 11.0, 12.0), ("compute", 12.0, 13.0)]
    assert {(event.stage, event.microbatch) for event in recorder.events if event.lane != "wait"} == {(2, 5)}


def test_buckets_are_counted_from_the_last_layer_in_a_backward() -> None:
    def gather(kind: str, part: int) -> Action:
        return Action(kind, 0, part=part, parts=2, group="dp", operation="all_gather")

    program = (
        gather("start", 0), gather("wait", 0), Action("F", 0, 0, 0, 2), Action("F", 0, 0, 1, 2),
        gather("start", 0), gather("wait", 0), Action("B", 0, 0, 0, 2),
        Action("start", 0, part=0, parts=2, group="dp", operation="reduce_scatter"), Action("optimizer"),
    )  # fmt: skip
    assert in_backward(program) == [False, False, False, False, True, True, False, True, False]
