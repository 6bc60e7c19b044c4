"""Calls in processes that are forked from this one, which have all that it has imported and computed.

A forked process begins at once, and what this process knows of a request by then, such as the costs of its stages, need not be
computed again. Whoever asked holds one end of a pipe: the call writes `DONE` to the other end once its answer is complete, and
the pipe closes when the process ends. The fork server of `multiprocessing` runs the main module of the caller once more, which
scripts and notebooks that call `plan` are not written for; joblib's processes import the program anew."""

from __future__ import annotations

import ctypes
import gc
import os
import pickle
import select
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, NoReturn

from sim.units import Seconds

DONE = b"+"
PR_SET_PDEATHSIG = 1
"""The first argument of Linux' prctl for the signal that a process gets when the one that forked it ends (linux/prctl.h)."""


@dataclass(frozen=True, slots=True)
class Task:
    """A call in a process of its own. nice: increment of its niceness. collected: thresholds of Python's cyclic garbage
    collector, those of the process that asks, because with the default ones it takes a seventh of the time of a proof."""

    call: Callable[[], object]
    nice: int
    collected: tuple[int, int, int]

    def run(self) -> object:
        """The answer of the call."""
        gc.set_threshold(*self.collected)
        if self.nice and hasattr(os, "nice"):
            os.nice(self.nice)
        return self.call()


@dataclass(slots=True)
class Forked:
    """A forked process, seen from the process that forked it; like `subprocess.Popen`, as far as that is needed.

    pid: its number. pipe: the end of the pipe that is read. returncode: None while it runs, 0 with an answer, else -1."""

    pid: int
    pipe: int
    returncode: int | None = field(default=None, init=False)
    _read: bytes = field(default=b"", init=False)

    def poll(self) -> int | None:
        """Its return code now."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self.returncode

    def wait(self, timeout: Seconds | None = None) -> int:
        """Wait for its end and return its return code. Raises subprocess.TimeoutExpired."""
        while self.returncode is None:
            if not select.select([self.pipe], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("a forked process", timeout or 0.0)
            found = os.read(self.pipe, len(DONE))
            self._read += found
            if not found:
                os.close(self.pipe)
                os.waitpid(self.pid, 0)
                self.returncode = 0 if self._read == DONE else -1
        return self.returncode

    def kill(self) -> None:
        """End it, if it runs."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait()


def can_fork() -> bool:
    """Whether processes can be forked here: on Linux, as libraries elsewhere need not survive it, and beside no other threads
    than daemons.

    A lock that another thread holds stays locked in the forked process. Threads that show the progress of a command are
    daemons, and hold no lock that a call needs; others may plan as well."""
    this = threading.current_thread()
    return sys.platform == "linux" and all(thread.daemon for thread in threading.enumerate() if thread is not this)


def fork(task: Task, answer: IO[bytes]) -> Forked:
    """Fork a process that writes the pickled answer of a task to a file; no Ctrl-C reaches it. Raises OSError."""
    read, write = os.pipe()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of other threads (`can_fork`)
            number = os.fork()
        if number == 0:
            _work(task, answer, write)
    except OSError:
        os.close(read)
        raise
    finally:
        os.close(write)
    return Forked(number, read)


def _work(task: Task, answer: IO[bytes], pipe: int) -> NoReturn:
    """The forked process: make the call and write its answer. It prints nothing, and ends when its parent does."""
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in range(3):
            os.dup2(nothing, standard)
        gc.freeze()  # objects of the parent are never collected here
        pickle.dump(task.run(), answer)
        answer.flush()
        os.write(pipe, DONE)
    finally:
        os._exit(0)
