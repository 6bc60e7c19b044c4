"""Second processes that are forked from a server."""

from __future__ import annotations

import gc
import math
import os
import signal
import time
from contextlib import ExitStack
from functools import partial

import pytest

from planner import second_process
from planner.fork_server import ForkServer, can_fork
from planner.second_process import NICE, SecondProcess

pytestmark = pytest.mark.skipif(not can_fork(), reason="second processes are not forked here")


@pytest.fixture
def server():
    with ForkServer() as one:
        yield one


def test_the_answers_are_those_of_the_calls_and_all_processes_come_from_one(server):
    with SecondProcess(os.getppid, server=server) as one, SecondProcess(os.getppid, server=server) as other:
        assert one.ends(None) and other.ends(None)
        assert one.answer() == other.answer() != os.getpid()
    with SecondProcess(os.getppid) as alone:
        assert alone.ends(None) and alone.answer() == os.getpid()


def test_a_call_that_fails_or_is_killed_has_no_answer_and_the_next_one_has(server):
    with SecondProcess(partial(math.sqrt, -1.0), server=server) as second:
        assert second.ends(None) and second.answer() is None
    with SecondProcess(partial(signal.raise_signal, signal.SIGKILL), server=server) as second:
        assert second.ends(None) and second.answer() is None
    with SecondProcess(partial(math.gcd, 12, 18), server=server) as second:
        assert second.ends(None) and second.answer() == 6


def test_a_call_that_takes_too_long_has_not_ended_and_is_ended(server):
    with SecondProcess(partial(time.sleep, 600), server=server) as second:
        assert not second.ends(0.0) and second.process is not None
        assert not second.ends(2.0)
    assert second.process.returncode == -1 and second.answer() is None


def test_the_end_of_the_server_ends_its_processes():
    with ExitStack() as opened:
        second = opened.enter_context(SecondProcess(partial(time.sleep, 600), server=opened.enter_context(ForkServer())))
        assert not second.ends(0.0)
    with SecondProcess(partial(time.sleep, 600), server=(one := ForkServer())) as second:
        one.__exit__(None, None, None)
        assert second.ends(10.0) and second.answer() is None


def test_a_call_that_gives_way_has_a_higher_niceness(server):
    with SecondProcess(partial(os.nice, 0), True, server) as polite, SecondProcess(partial(os.nice, 0), server=server) as equal:
        assert polite.ends(None) and equal.ends(None)
        assert (equal.answer(), polite.answer()) == (os.nice(0), min(os.nice(0) + NICE, 19))


@pytest.mark.parametrize("forked", [True, False])
def test_garbage_is_collected_as_in_the_process_that_asks(server, forked):
    before = gc.get_threshold()
    gc.set_threshold(7_001, 11, 12)
    try:
        with SecondProcess(gc.get_threshold, server=server if forked else None) as second:
            assert second.ends(None) and second.answer() == (7_001, 11, 12)
    finally:
        gc.set_threshold(*before)


def test_elsewhere_each_call_has_a_process_of_its_own(server, monkeypatch):
    monkeypatch.setattr(second_process, "can_fork", lambda: False)
    with SecondProcess(os.getppid, server=server) as second:
        assert second.ends(None) and second.answer() == os.getpid()
