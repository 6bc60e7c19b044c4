"""A process from which all second processes of a command are forked, so that the program is imported once for all of them.

It takes calls over a socket, reads each, which imports what the call needs, and forks. Whoever asked holds one end of a pipe:
the call writes the number of its process to the other end when it begins, and `DONE` once its answer is complete; the pipe
closes when it ends. The fork server of `multiprocessing` runs the main module of the caller once more in each process, which
scripts and notebooks that call `plan` are not written for; joblib's processes import the program anew."""

from __future__ import annotations

import gc
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import IO, NoReturn

from sim.units import Seconds

PROGRAM = "from planner.fork_server import serve; serve()"
DONE = b"+"
NUMBER = 8
"""Bytes in which the number of a process is written."""
DESCRIPTORS = 3
"""Open files that a call comes with: the call, its answer and the end of the pipe."""


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
    """A forked process, seen from the process that asked for it; like `subprocess.Popen`, as far as that is needed.

    pipe: the end of the pipe that is read. returncode: None while it runs, 0 with an answer, else -1."""

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
                raise subprocess.TimeoutExpired(PROGRAM, timeout or 0.0)
            found = os.read(self.pipe, NUMBER + len(DONE))
            self._read += found
            if not found:
                self._end()
        return self.returncode

    def kill(self) -> None:
        """End it, if it runs. Where it has not begun, it ends when it begins, because the pipe is closed."""
        if self.poll() is None:
            if len(self._read) >= NUMBER:  # no other process has this number: the server waits for none before its own end
                os.kill(int.from_bytes(self._read[:NUMBER], "big"), signal.SIGKILL)
                self.wait()
            else:
                self._end()

    def _end(self) -> None:
        os.close(self.pipe)
        self.returncode = 0 if self._read[NUMBER:] == DONE else -1


@dataclass(slots=True)
class ForkServer:
    """The server, which starts with the first call. It is a context manager, which ends it and all its processes."""

    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _socket: socket.socket | None = field(default=None, init=False)

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._socket is not None:
            self._socket.close()
        if self._process is not None:
            self._process.wait()

    def start(self, task: IO[bytes], answer: IO[bytes]) -> Forked:
        """Fork a process for the pickled `Task` in `task`, which writes its answer to `answer`. Raises OSError."""
        if self._socket is None:
            self._socket, theirs = socket.socketpair()
            with theirs:
                self._process = begin(PROGRAM, theirs.fileno(), subprocess.DEVNULL)
        read, write = os.pipe()
        try:
            socket.send_fds(self._socket, [DONE], [task.fileno(), answer.fileno(), write])
        except OSError:
            os.close(read)
            raise
        finally:
            os.close(write)
        return Forked(read)


def begin(program: str, given: IO[bytes] | int, printed: IO[bytes] | int) -> subprocess.Popen[bytes]:
    """A new process that runs a line of Python, with its standard input and output; no Ctrl-C reaches it. Raises OSError."""
    command = [sys.executable, "-P", "-c", program]  # -P: a folder of the user may have the name of a package of ours
    return subprocess.Popen(command, stdin=given, stdout=printed, stderr=subprocess.DEVNULL, start_new_session=True)


def can_fork() -> bool:
    """Whether processes can be forked here. Elsewhere than on Linux, libraries need not survive it."""
    return sys.platform == "linux"


def serve() -> None:
    """The server: fork a process for each call from the socket on standard input, until that closes; then end them."""
    calls, numbers = socket.socket(fileno=sys.stdin.fileno()), list[int]()
    while True:
        _, files, _, _ = socket.recv_fds(calls, len(DONE), DESCRIPTORS)
        if not files:
            break
        with ExitStack() as opened:
            task, answer = (
                opened.enter_context(os.fdopen(file, mode)) for file, mode in zip(files, ("rb", "wb"), strict=False)
            )
            opened.callback(os.close, files[-1])
            with suppress(Exception):  # whoever asked sees that the pipe closes without `DONE`
                todo: Task = pickle.load(task)
                number = os.fork()
                if number == 0:
                    _work(todo, answer, files[-1])
                numbers.append(number)
    for number in numbers:
        os.kill(number, signal.SIGKILL)
        os.waitpid(number, 0)


def _work(todo: Task, answer: IO[bytes], pipe: int) -> NoReturn:
    """A forked process: make the call and write its answer."""
    try:
        os.write(pipe, os.getpid().to_bytes(NUMBER, "big"))
        pickle.dump(todo.run(), answer)
        answer.flush()
        os.write(pipe, DONE)
    finally:
        os._exit(0)
