"""Engine dask://HOST:PORT: the workers of a dask.distributed cluster, by the address of its scheduler.

Workers need the same holmes-sim. A process plans one scenario at a time, so one thread each serves best (`dask worker
--nthreads 1`).
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING

from holmes_sim.sweeping.answering import FAILED, Row, Task, answer, unanswered
from sim.errors import HolmesError

if TYPE_CHECKING:
    from distributed import Future

WAIT = "10s"
"""How long a scheduler may take to answer."""


def answers(tasks: Iterable[Task], count: int, address: str) -> Generator[tuple[str, Row]]:
    """(digest, row) of every task, as they are finished; a task that kills its workers has failed.

    Raises HolmesError where distributed is missing, no scheduler answers, or a worker has another holmes-sim."""
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
        digests = {client.submit(answer, task, pure=False): task.digest for task in tasks}
        try:
            for future in distributed.as_completed(list(digests), loop=client.loop):
                yield _row(future, digests.pop(future), address)
        finally:
            client.cancel(list(digests))


def _row(future: Future[tuple[str, Row]], digest: str, address: str) -> tuple[str, Row]:
    from distributed import CancelledError, KilledWorker

    try:
        found: tuple[str, Row] = future.result()
        return found
    except KilledWorker:
        return digest, unanswered(FAILED, "it killed the workers that planned it, perhaps for want of memory")
    except ModuleNotFoundError as error:
        raise HolmesError(f"dask://{address}: a worker cannot plan ({error}); install holmes-sim there") from None
    except (CancelledError, OSError) as error:
        raise HolmesError(
            f"dask://{address}: the scheduler is lost ({str(error).splitlines()[0]}); run it again to go on"
        ) from None
