"""Strategies that are planned while the certified search runs: in a second process, where this machine has a core for it.

Their plans are shown beside the search's and do not change it, so the search does not depend on when they are ready. The
process reads its task from a file and writes the answers to another; it can be ended at any time."""

from __future__ import annotations

import math
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import parent_process
from types import TracebackType
from typing import IO, TypeAlias

from planner.costs.context import PlanningContext
from planner.request import Request
from sim.errors import Infeasible
from sim.plan.plan import Plan

PARALLEL_FROM = 40
"""Least number of devices for which a process is started. Guess: on fewer, planning takes less time than its start."""
PROGRAM = "from planner.search.beside import work; work()"
Ask: TypeAlias = Callable[[str, PlanningContext], Plan]
"""The plan of a strategy by its name; raises Infeasible where there is none. It can be pickled."""
Answer: TypeAlias = Plan | Infeasible


@dataclass(slots=True)
class Beside:
    """The answers of the strategies that a context wants beside the search. It is a context manager, which ends the process."""

    context: PlanningContext
    ask: Ask
    _open: ExitStack = field(default_factory=ExitStack, init=False)
    _answers: IO[bytes] | None = field(default=None, init=False)
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def __enter__(self) -> Beside:
        request, names = self.context.request, self.context.beside
        if names and _has_free_core() and request.topology.fleet.devices >= PARALLEL_FROM:
            task = self._open.enter_context(tempfile.TemporaryFile())
            self._answers = self._open.enter_context(tempfile.TemporaryFile())
            pickle.dump((self.ask, names, request), task)
            task.seek(0)
            command = [sys.executable, "-P", "-c", PROGRAM]  # -P: a folder of the user may have the name of a package of ours
            with suppress(OSError):  # in a session of its own Ctrl-C does not reach it
                self._process = subprocess.Popen(
                    command, stdin=task, stdout=self._answers, stderr=subprocess.DEVNULL, start_new_session=True
                )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._open.close()

    def plan(self) -> None:
        """Without a second process: plan in this one, within the time limit."""
        if self._process is None:
            self._plan_here()

    def collect(self) -> None:
        """Give the context the answers of the second process; wait for them until the time limit."""
        if self._process is None or self._answers is None:
            return
        left = self.context.limit.seconds_left
        try:
            self.context.progress(f"planning with {' and '.join(self.context.beside)}")
            code = self._process.wait(None if math.isinf(left) else max(left, 0.0))
        except subprocess.TimeoutExpired:
            self.context.limit.is_up()
            return
        if code != 0:  # it was killed, or lacked memory
            self._plan_here()
            return
        self._answers.seek(0)
        for name, answer in pickle.load(self._answers).items():
            self.context.learn(name, _of(self.context.request, answer))

    def _plan_here(self) -> None:
        """Plan with every strategy in this process, within the time limit."""
        for name in self.context.beside:
            if not self.context.limit.is_up():
                self.context.progress(f"planning with strategy {name}")
                with suppress(Infeasible):
                    self.context.answer(name, partial(self.ask, name, self.context))


def _has_free_core() -> bool:
    """Whether a second process is of use: on several cores, unless this process itself is a worker beside others."""
    return (os.cpu_count() or 1) > 1 and parent_process() is None


def work() -> None:
    """The second process: read the task from standard input, and write the answers to standard output."""
    ask, names, request = pickle.load(sys.stdin.buffer)
    answers = {name: _answer(ask, name, request) for name in names}
    sys.stdout.buffer.seek(0)  # whatever the start of Python has printed
    sys.stdout.buffer.truncate()
    pickle.dump(answers, sys.stdout.buffer)


def _answer(ask: Ask, name: str, request: Request) -> Answer:
    """The plan of a strategy, or why it has none."""
    try:
        return ask(name, PlanningContext(request))
    except Infeasible as error:
        return error


def _of(request: Request, answer: Answer) -> Answer:
    """An answer of another process, whose plan has a topology and a workload of its own, for the objects of this request."""
    return replace(answer, topology=request.topology, workload=request.workload) if isinstance(answer, Plan) else answer
