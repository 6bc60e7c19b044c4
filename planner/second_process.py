"""A call in a second process, beside the work of this one.

The process writes its answer to a file; it can be ended at any time. It is forked (`planner.forking`) where that is possible,
and else imports the program anew and reads the call from another file."""

from __future__ import annotations

import gc
import math
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from multiprocessing import parent_process
from pathlib import Path
from types import TracebackType
from typing import IO, Generic, TypeVar

from planner.forking import Forked, Task, can_fork, fork
from sim.units import Seconds

PROGRAM = "from planner.second_process import work; work()"
NICE = 5
"""Increment of the niceness of a call that gives way to this process (a guess)."""
BESIDE_FROM = 24
"""Least number of devices for which a part of a search gets a process. Guess: on fewer, it takes less time than its start."""
AHEAD_S: Seconds = 1.0
"""Seconds of the time limit that such a process leaves to hand over its answer (a guess)."""
POLL_S: Seconds = 0.2
"""Seconds between two looks at what else can be done while a process is waited for (a guess)."""
Answer = TypeVar("Answer")


@dataclass(slots=True)
class SecondProcess(Generic[Answer]):
    """A call without arguments that can be pickled, in a process of its own. It is a context manager, which starts and ends the
    process. `gives_way`: this process and others of normal priority come first."""

    call: Callable[[], Answer]
    gives_way: bool = False
    process: subprocess.Popen[bytes] | Forked | None = field(default=None, init=False)
    _open: ExitStack = field(default_factory=ExitStack, init=False)
    _answer: IO[bytes] | None = field(default=None, init=False)

    def __enter__(self) -> SecondProcess[Answer]:
        task = Task(self.call, NICE if self.gives_way else 0, gc.get_threshold())
        self._answer = answer = self._open.enter_context(tempfile.TemporaryFile())
        with suppress(OSError):
            self.process = fork(task, answer) if can_fork() else self._begun(task, answer)
        return self

    @staticmethod
    def _begun(task: Task, answer: IO[bytes]) -> subprocess.Popen[bytes]:
        """A new process that imports the program and runs a task; no Ctrl-C reaches it. Raises OSError."""
        command = [sys.executable, "-P", "-c", PROGRAM]  # -P: a folder of the user may have the name of a package of ours
        with tempfile.TemporaryFile() as given:
            pickle.dump(task, given)
            given.seek(0)
            return subprocess.Popen(command, stdin=given, stdout=answer, stderr=subprocess.DEVNULL, start_new_session=True)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        self._open.close()

    def ends(self, seconds: Seconds, meanwhile: Callable[[], None] | None = None) -> bool:
        """Wait for the process, for at most so many seconds, which may be infinite, and call `meanwhile` every `POLL_S`; return
        whether it has ended."""
        if self.process is None:
            return True
        until = time.perf_counter() + max(seconds, 0.0)
        while (left := until - time.perf_counter()) > POLL_S and meanwhile is not None:
            if self._ends(POLL_S):
                return True
            meanwhile()
        return self._ends(None if math.isinf(left) else max(left, 0.0))

    def _ends(self, seconds: Seconds | None) -> bool:
        """Wait for the process that was started."""
        assert self.process is not None
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def answer(self) -> Answer | None:
        """The answer of a process that has ended; None where it could not be started, was killed, or failed."""
        if self.process is None or self.process.returncode != 0 or self._answer is None:
            return None
        self._answer.seek(0)
        found: Answer = pickle.load(self._answer)
        return found


def has_free_core() -> bool:
    """Whether a second process is of use: one of several cores is idle, and this process is no worker beside others.

    A core is idle if fewer processes ran in the last minute than there are cores, or if fewer run now, which says more after a
    command that used all cores; this process and its children do not count then."""
    cores = os.cpu_count() or 1
    busy = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0  # processes that ran in the last minute; not on Windows
    return cores > 1 and parent_process() is None and (busy < cores or running_others() < cores - 1)


def running_others() -> float:
    """Number of processes of this machine that run now, but for this one and its children; infinite where it is not known."""
    try:
        running = int(Path("/proc/loadavg").read_text().split()[3].split("/")[0])
        return max(running - 1 - sum(map(_is_running, _children(str(os.getpid())))), 0)
    except (OSError, ValueError, IndexError):
        return math.inf


def _children(number: str) -> list[str]:
    """The numbers of the child processes of a process, by its number. Raises OSError."""
    return Path(f"/proc/{number}/task/{number}/children").read_text().split()


def _is_running(number: str) -> bool:
    """Whether a process runs now, by its number. Raises OSError."""
    return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] == "R"


def work() -> None:
    """The second process: read the call from standard input, and write its answer to standard output."""
    answer = pickle.load(sys.stdin.buffer).run()
    sys.stdout.buffer.seek(0)  # whatever the start of Python has printed
    sys.stdout.buffer.truncate()
    pickle.dump(answer, sys.stdout.buffer)
