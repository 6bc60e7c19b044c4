"""Calls in a second process."""

from __future__ import annotations

import math
import os
import time
from functools import partial
from pathlib import Path

import pytest

from planner import second_process
from planner.second_process import NICE, SecondProcess, has_free_core, running_others


def test_the_answer_is_that_of_the_call():
    with SecondProcess(partial(math.gcd, 12, 18)) as second:
        assert second.ends(math.inf)
        assert second.answer() == 6


def test_a_call_that_fails_has_no_answer():
    with SecondProcess(partial(math.sqrt, -1.0)) as second:
        assert second.ends(math.inf)
        assert second.answer() is None


def test_a_call_that_takes_too_long_has_not_ended_and_is_ended():
    with SecondProcess(partial(time.sleep, 600)) as second:
        assert not second.ends(0.0)
        assert second.process is not None and second.process.poll() is None
    assert second.process.returncode is not None
    assert second.answer() is None


def _waits_for(file: Path) -> bool:
    while not file.exists():
        time.sleep(0.01)
    return True


def test_a_wait_does_other_things_meanwhile(tmp_path):
    file = tmp_path / "done"
    with SecondProcess(partial(_waits_for, file)) as second:
        assert second.ends(math.inf, file.touch)
        assert second.answer()


@pytest.mark.skipif(not hasattr(os, "nice"), reason="processes have no niceness here")
def test_a_call_that_gives_way_has_a_higher_niceness():
    with SecondProcess(partial(os.nice, 0), gives_way=True) as polite, SecondProcess(partial(os.nice, 0)) as equal:
        assert polite.ends(math.inf) and equal.ends(math.inf)
        assert equal.answer() == os.nice(0)
        assert polite.answer() == min(os.nice(0) + NICE, 19)


@pytest.mark.parametrize(
    ("cores", "busy", "free"), [(1, 0.0, False), (2, 0.4, True), (2, 1.9, True), (2, 2.0, False), (8, 7.5, True)]
)
def test_a_second_process_is_of_use_where_a_core_is_idle(monkeypatch, cores, busy, free):
    monkeypatch.setattr(second_process.os, "cpu_count", lambda: cores)
    monkeypatch.setattr(second_process.os, "getloadavg", lambda: (busy, 9.0, 9.0))
    monkeypatch.setattr(second_process, "running_others", lambda: math.inf)
    assert has_free_core() == free


@pytest.mark.parametrize(
    ("cores", "running", "free"), [(1, 0, False), (2, 0, True), (2, 1, False), (8, 6, True), (8, 7, False)]
)
def test_what_runs_now_counts_where_all_cores_were_busy_in_the_last_minute(monkeypatch, cores, running, free):
    monkeypatch.setattr(second_process.os, "cpu_count", lambda: cores)
    monkeypatch.setattr(second_process.os, "getloadavg", lambda: (99.0, 99.0, 99.0))
    monkeypatch.setattr(second_process, "running_others", lambda: running)
    assert has_free_core() == free


def test_a_machine_that_does_not_say_what_runs_has_none_idle_now(monkeypatch):
    def missing(path: Path) -> str:
        raise FileNotFoundError(path)

    monkeypatch.setattr(Path, "read_text", missing)
    assert running_others() == math.inf


def test_this_process_and_its_children_are_none_of_those_that_run_beside_it(monkeypatch):
    told = {
        "/proc/loadavg": "9.0 9.0 9.0 5/200 77",
        f"/proc/{os.getpid()}/task/{os.getpid()}/children": "78 79 80 81 ",
        "/proc/78/stat": "78 (python) S 1",
        "/proc/79/stat": "79 (a name) R) R 1",
        "/proc/80/stat": "80 (python) R 1",
        "/proc/81/stat": "81 (python) Z 1",
    }
    monkeypatch.setattr(Path, "read_text", lambda path: told[str(path)])
    assert running_others() == 2


def test_a_worker_of_a_pool_starts_no_further_process(monkeypatch):
    monkeypatch.setattr(second_process, "parent_process", lambda: object())
    monkeypatch.setattr(second_process.os, "cpu_count", lambda: 64)
    monkeypatch.setattr(second_process.os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    assert not has_free_core()
