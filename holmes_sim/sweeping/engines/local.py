"""Engine local: one joblib process for each core of this machine."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterable
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from holmes_sim.sweeping.worker import Row, Task, run_task
from sim.errors import HolmesError
from sim.units import Seconds

Given = TypeVar("Given")
Found = TypeVar("Found")
WATCH_INTERVAL: Seconds = 1.0
"""Time between two checks of a worker whether its parent process still runs."""


def results(tasks: Iterable[Task], count: int, address: str) -> Generator[tuple[str, Row]]:
    """(digest, row) of every task, in the order they finish; with one worker in this process. Raises HolmesError if one is
    killed.

    Worker processes end together with the parent process, also after Ctrl-C or kill -9.
    """
    if address:
        raise HolmesError(f"engine local takes no address, not {address!r}")
    try:
        yield from pooled(run_task, tasks, count)
    except BrokenProcessPool:  # joblib's error for a killed worker (TerminatedWorkerError) is a subclass
        text = "a worker process was killed; it may have run out of memory. Run the sweep again to continue"
        raise HolmesError(text) from None


def pooled(work: Callable[[Given], Found], tasks: Iterable[Given], count: int) -> Generator[Found]:
    """`work` of each of `count` tasks, in the order they finish. Raises BrokenProcessPool if a worker is killed.

    A task is taken from the iterator when a worker is free for it. Workers end as `results` says."""
    import joblib  # its import takes longer than most commands need it

    processes = min(joblib.cpu_count(), count)
    if processes <= 1:
        yield from map(work, tasks)
        return
    setup = {"initializer": _set_up_worker, "initargs": (os.getpid(),)}
    with joblib.parallel_config("loky", inner_max_num_threads=1):
        options = {"batch_size": 1, "pre_dispatch": processes, "return_as": "generator_unordered"}
        pool = joblib.Parallel(n_jobs=processes, **options, **setup)
        finished = pool(joblib.delayed(work)(task) for task in tasks)
        try:
            for found in finished:  # noqa: UP028 - `yield from` would close it outside catch_warnings
                yield found
        finally:
            with warnings.catch_warnings(action="ignore", category=UserWarning):
                finished.close()


def _set_up_worker(parent: int) -> None:
    """Worker initializer: ignore Ctrl-C, and end when the parent ends (joblib's workers would wait for minutes)."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    """End this process once its parent has ended."""
    while os.getppid() == parent:
        time.sleep(WATCH_INTERVAL)
    os._exit(1)
