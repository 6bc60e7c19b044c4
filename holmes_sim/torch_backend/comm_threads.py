"""Threads that execute messages and collectives beside the compute of a rank, and record their start and end.

Each thread executes its jobs in order. Receives are posted ahead of time, so that a message travels when it is sent and not
when the receiver waits for it, as in the simulator.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from holmes_sim.torch_backend.devices import own_stream, synchronize
from sim.units import Seconds

POSTED_RECEIVES = 8
"""Maximum number of receives posted at a time for each sender and direction. A guess: more than a schedule sends in a row."""


@dataclass(slots=True, eq=False)
class Job:
    """Work for a communication thread. `failed` is the exception that it raised, if any."""

    work: Callable[[], None]
    device: torch.device
    posting: Callable[[], Callable[[], None]] | None = None
    started: Seconds = 0.0
    ended: Seconds = 0.0
    failed: BaseException | None = None
    done: threading.Event = field(default_factory=threading.Event)

    def post(self) -> None:
        """Post the operation that the job will wait for."""
        assert self.posting is not None
        try:
            self.work = self.posting()
        except BaseException as error:
            self.failed = error

    def run(self) -> None:
        """Execute the job and record start and end."""
        self.started = time.perf_counter()
        try:
            if self.failed is None:
                self.work()
                synchronize(self.device)
        except BaseException as error:  # `wait` raises it in the waiting thread
            self.failed = error
        self.ended = time.perf_counter()
        self.done.set()

    def wait(self) -> None:
        """Wait until the job is done. Raises the exception of a failed job."""
        self.done.wait()
        if self.failed is not None:
            raise self.failed


class CommThread:
    """A thread that executes jobs one after another."""

    def __init__(self, name: str, device: torch.device):
        self.device = device
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        with own_stream(self.device):
            self._serve()

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.run()

    def submit(self, work: Callable[[], None]) -> Job:
        """Append a job. Results of the calling thread's earlier work are complete when the job starts."""
        synchronize(self.device)
        job = Job(work, self.device)
        self._jobs.put(job)
        return job

    def close(self) -> None:
        """End the thread after the jobs submitted so far."""
        self._jobs.put(None)


class ReceiveThread(CommThread):
    """Waits for the messages of one sender and direction in order, with several receives posted ahead.

    Posting a receive tells the sender that a buffer is free; this notice shares the link with our own outgoing messages. If
    each receive were posted only after the previous message had come, the notice would wait behind those messages and delay the
    sender.
    """

    def _serve(self) -> None:
        posted: deque[Job] = deque()
        closing = False
        while not closing or posted:
            while not closing and len(posted) < POSTED_RECEIVES and not (posted and self._jobs.empty()):
                job = self._jobs.get()
                closing = job is None
                if job is not None:
                    job.post()
                    posted.append(job)
            if posted:
                posted.popleft().run()

    def enqueue(self, posting: Callable[[], Callable[[], None]]) -> Job:
        """Append a receive. `posting` posts it and returns a function that waits for the message."""
        job = Job(lambda: None, self.device, posting=posting)
        self._jobs.put(job)
        return job
