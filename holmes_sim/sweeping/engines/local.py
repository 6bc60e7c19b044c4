"""Engine local: processes of this machine, one for each core, by joblib."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections.abc import Generator, Iterable

import joblib
from joblib.externals.loky.process_executor import TerminatedWorkerError

from holmes_sim.sweeping.answering import Row, Task, answer
from sim.errors import HolmesError
from sim.units import Seconds

LOOKED_AFTER: Seconds = 1.0
"""How often a process looks whether the one that asks still lives."""


def answers(tasks: Iterable[Task], count: int, address: str) -> Generator[tuple[str, Row]]:
    """(digest, row) of every task, as they are finished; a single one in this process. Raises HolmesError where one is killed.

    Processes end with the one that asks, by Ctrl-C or kill -9."""
    if address:
        raise HolmesError(f"engine local takes no address, not {address!r}")
    processes = min(joblib.cpu_count(), count)
    if processes <= 1:
        yield from map(answer, tasks)
        return
    bound = {"initializer": _bound, "initargs": (os.getpid(),)}
    with joblib.parallel_config("loky", inner_max_num_threads=1):
        pool = joblib.Parallel(n_jobs=processes, batch_size=1, return_as="generator_unordered", **bound)
        finished = pool(joblib.delayed(answer)(task) for task in tasks)
        try:
            for found in finished:  # noqa: UP028 - `yield from` would close it inside, with advice for programmers
                yield found
        except TerminatedWorkerError:
            raise HolmesError("a worker process was killed, perhaps for want of memory; run it again to go on") from None
        finally:
            with warnings.catch_warnings(action="ignore", category=UserWarning):
                finished.close()


def _bound(parent: int) -> None:
    """A process begins: Ctrl-C is not for it, and it ends when its parent does (joblib's own would wait for minutes)."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOKED_AFTER)
    os._exit(1)
