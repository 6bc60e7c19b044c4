"""Threads that carry messages and collectives beside the compute of a rank, each in its own order, and note when they end.

Receives are posted ahead, so that a message travels when it is sent, as the engine takes it, and not when it is asked for.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from sim.units import Seconds


@dataclass(slots=True, eq=False)
class Job:
    """Something that a lane does. `failed` is what went wrong."""

    work: Callable[[], None]
    started: Seconds = 0.0
    ended: Seconds = 0.0
    failed: BaseException | None = None
    done: threading.Event = field(default_factory=threading.Event)

    def wait(self) -> None:
        """Until it is done; raises what went wrong."""
        self.done.wait()
        if self.failed is not None:
            raise self.failed


class Lane:
    """Does jobs one after the other, in a thread of its own."""

    def __init__(self, name: str):
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.started = time.perf_counter()
            try:
                job.work()
            except BaseException as error:  # told to who waits for the job
                job.failed = error
            job.ended = time.perf_counter()
            job.done.set()

    def do(self, work: Callable[[], None]) -> Job:
        """Put a job at the end."""
        job = Job(work)
        self._jobs.put(job)
        return job

    def close(self) -> None:
        """No more jobs."""
        self._jobs.put(None)
