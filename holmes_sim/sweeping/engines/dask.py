"""Engine dask://HOST:PORT: the workers of a dask.distributed cluster, given the address of its scheduler.

Workers need the same version of holmes-sim. A process plans one scenario at a time, so one thread per worker is best (`dask
worker --nthreads 1`).
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING

from holmes_sim.sweeping.worker import FAILED, Row, Task, row_without_plan, run_task
from sim.errors import HolmesError

if TYPE_CHECKING:
    from distributed import Future

WAIT = "10s"
"""Time limit for connecting to the scheduler."""


def results(tasks: Iterable[Task], count: int, address: str) -> Generator[tuple[str, Row]]:
    """(digest, row) of every task, in the order they finish; a task that kills its workers gets status failed.

    Raises HolmesError if distributed is missing, no scheduler answers, or a worker has another version of holmes-sim.
    """
    try:
        import distributed
    except ModuleNotFoundError:
        raise HolmesError("engine dask needs distributed; pip install 'holmes-sim[dask]'") from None
    host, _, port = address.rpartition(":")
    if not host or not re.fullmatch(r"[0-9]{1,5}", port) or not 0 < int(port) < 65536:
        raise HolmesError(f"engine dask needs the address of a scheduler, dask://HOST:PORT, not dask://{address}")
    try:
        client = distributed.Client(f"tcp://{address}", timeout=WAIT, set_as_default=False)
    except (OSError, ValueError) as error:
        raise HolmesError(f"dask://{address}: no scheduler answers: {error}") from None
    with client:
        digests = {client.submit(run_task, task, pure=False): task.digest for task in tasks}
        try:
            for future in distributed.as_completed(list(digests), loop=client.loop):
                yield _row(future, digests.pop(future), address)
        finally:
            client.cancel(list(digests))


def _row(future: Future[tuple[str, Row]], digest: str, address: str) -> tuple[str, Row]:
    """(digest, row) of a finished task. Raises HolmesError if the cluster is lost or a worker lacks holmes-sim."""
    from distributed import CancelledError, KilledWorker

    try:
        found: tuple[str, Row] = future.result()
        return found
    except KilledWorker:
        return digest, row_without_plan(FAILED, "it killed the workers that planned it; they may have run out of memory")
    except ModuleNotFoundError as error:
        raise HolmesError(f"dask://{address}: a worker cannot plan ({error}); install holmes-sim on it") from None
    except (CancelledError, OSError) as error:
        raise HolmesError(
            f"dask://{address}: lost the scheduler ({str(error).splitlines()[0]}); run the sweep again to continue"
        ) from None
