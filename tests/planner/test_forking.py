"""Second processes that are forked from the one that asks."""

from __future__ import annotations

import gc
import math
import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from planner import second_process
from planner.forking import can_fork
from planner.second_process import NICE, SecondProcess

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="second processes are not forked here")
FACTS = {"known": 1}


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """As in a process without other threads; those of the runner of the tests hold no locks that matter."""
    monkeypatch.setattr(threading, "enumerate", lambda: [threading.current_thread()])


def test_a_call_has_what_its_parent_knows_and_the_parent_nothing_of_what_it_does(monkeypatch):
    monkeypatch.setitem(FACTS, "known", 12)
    with SecondProcess(lambda: FACTS.update(found=18) or math.gcd(*FACTS.values())) as second:
        assert second.ends(math.inf) and second.answer() == 6
    assert FACTS == {"known": 12}


def test_the_process_is_a_child_in_a_session_of_its_own():
    with SecondProcess(lambda: (os.getppid(), os.getpid(), os.getsid(0))) as second:
        assert second.ends(math.inf)
        parent, own, session = second.answer()
        assert parent == os.getpid() and own == session == second.process.pid


def test_a_call_that_fails_or_is_killed_has_no_answer_and_the_next_one_has():
    for call in (partial(math.sqrt, -1.0), partial(signal.raise_signal, signal.SIGKILL), partial(sys.exit, 3)):
        with SecondProcess(call) as second:
            assert second.ends(math.inf) and second.answer() is None
            assert second.process.returncode == -1
    with SecondProcess(partial(math.gcd, 12, 18)) as second:
        assert second.ends(math.inf) and second.answer() == 6


def test_a_call_that_takes_too_long_has_not_ended_and_is_ended():
    with SecondProcess(partial(time.sleep, 600)) as second:
        assert not second.ends(0.0)
        assert not second.ends(0.1)
    assert second.process.returncode == -1 and second.answer() is None
    with pytest.raises(ProcessLookupError):
        os.kill(second.process.pid, 0)


def test_the_process_prints_nothing(capfd):
    with SecondProcess(lambda: os.write(1, b"out") + os.write(2, b"error")) as second:
        assert second.ends(math.inf) and second.answer() == 8
    assert capfd.readouterr() == ("", "")


def test_a_process_ends_with_the_one_that_forked_it(tmp_path):
    """A program that is killed while its second process runs."""
    program = (
        "import os, signal, time, pathlib\n"
        "from planner.second_process import SecondProcess\n"
        "def work():\n"
        f"    pathlib.Path({str(tmp_path / 'begun')!r}).write_text(str(os.getpid()))\n"
        "    time.sleep(600)\n"
        "with SecondProcess(work) as second:\n"
        "    second.ends(float('inf'))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program])
    begun = tmp_path / "begun"
    while not begun.exists() or not begun.read_text():
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.wait()
    for _ in range(3_000):
        if not _is_alive(begun.read_text()):
            break
        time.sleep(0.01)
    assert not _is_alive(begun.read_text())


def _is_alive(number: str) -> bool:
    """Whether a process runs or waits, by its number; one that has ended may be a zombie."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_call_that_gives_way_has_a_higher_niceness():
    with SecondProcess(partial(os.nice, 0), True) as polite, SecondProcess(partial(os.nice, 0)) as equal:
        assert polite.ends(math.inf) and equal.ends(math.inf)
        assert (equal.answer(), polite.answer()) == (os.nice(0), min(os.nice(0) + NICE, 19))


@pytest.mark.parametrize("forked", [True, False])
def test_garbage_is_collected_as_in_the_process_that_asks(monkeypatch, forked):
    monkeypatch.setattr(second_process, "can_fork", lambda: forked)
    before = gc.get_threshold()
    gc.set_threshold(7_001, 11, 12)
    try:
        with SecondProcess(gc.get_threshold) as second:
            assert second.ends(math.inf) and second.answer() == (7_001, 11, 12)
    finally:
        gc.set_threshold(*before)


def test_processes_are_forked_beside_daemons_only(monkeypatch):
    """A thread that plans as well may hold a lock that the forked process would wait for."""
    this, other = threading.current_thread(), threading.Thread()
    monkeypatch.setattr(threading, "enumerate", lambda: [this, other])
    assert not can_fork()
    other.daemon = True
    assert can_fork()


def test_elsewhere_a_call_has_a_process_that_imports_the_program(monkeypatch):
    monkeypatch.setattr(second_process, "can_fork", lambda: False)
    with SecondProcess(os.getppid) as second:
        assert isinstance(second.process, subprocess.Popen)
        assert second.ends(math.inf) and second.answer() == os.getpid()
