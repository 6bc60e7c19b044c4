"""Threads that carry messages and collectives beside the compute of a rank, each in its own order, and note when they end.

Receives are posted ahead, so that a message travels when it is sent, as the engine takes it, and not when it is asked for.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from holmes_sim.torch_backend.devices import beside, settle
from sim.units import Seconds

AHEAD = 8
"""Messages that are asked for before they come, of each sender and direction. A guess: more than a schedule sends in a row."""


@dataclass(slots=True, eq=False)
class Job:
    """Something that a lane does. `failed` is what went wrong."""

    work: Callable[[], None]
    device: torch.device
    asking: Callable[[], Callable[[], None]] | None = None
    started: Seconds = 0.0
    ended: Seconds = 0.0
    failed: BaseException | None = None
    done: threading.Event = field(default_factory=threading.Event)

    def ask(self) -> None:
        """Make ready what the job will wait for."""
        assert self.asking is not None
        try:
            self.work = self.asking()
        except BaseException as error:
            self.failed = error

    def do(self) -> None:
        """Do it, and note when."""
        self.started = time.perf_counter()
        try:
            if self.failed is None:
                self.work()
                settle(self.device)
        except BaseException as error:  # told to who waits for the job
            self.failed = error
        self.ended = time.perf_counter()
        self.done.set()

    def wait(self) -> None:
        """Until it is done; raises what went wrong."""
        self.done.wait()
        if self.failed is not None:
            raise self.failed


class Lane:
    """Does jobs one after the other, in a thread of its own."""

    def __init__(self, name: str, device: torch.device):
        self.device = device
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        with beside(self.device):
            self._serve()

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.do()

    def do(self, work: Callable[[], None]) -> Job:
        """Put a job at the end; what it takes from this thread is there when it begins."""
        settle(self.device)
        job = Job(work, self.device)
        self._jobs.put(job)
        return job

    def close(self) -> None:
        """No more jobs."""
        self._jobs.put(None)


class Inbox(Lane):
    """Waits for messages of one sender and direction, in their order; some more are asked for before one has come.

    Who has something for us hears on the wire back that there is room. Where that wire is full of our own messages, what is
    asked for only when the one before it has come, comes as late as those.
    """

    def _serve(self) -> None:
        asked: deque[Job] = deque()
        closing = False
        while not closing or asked:
            while not closing and len(asked) < AHEAD and not (asked and self._jobs.empty()):
                job = self._jobs.get()
                closing = job is None
                if job is not None:
                    job.ask()
                    asked.append(job)
            if asked:
                asked.popleft().do()

    def expect(self, ask: Callable[[], Callable[[], None]]) -> Job:
        """A message: `ask` says that there is room for it, and returns what waits until it has come."""
        job = Job(lambda: None, self.device, asking=ask)
        self._jobs.put(job)
        return job
