"""Offsets between the clocks of ranks and the clock of rank 0.

The offset of a rank comes from the fastest of several round trips to rank 0; its error is at most half that round trip
(Cristian, Probabilistic clock synchronization, Distributed Computing 3, 1989). It is measured before and after the steps, and
the mean of both is used, assuming constant drift in between.
"""

from __future__ import annotations

import time

import torch
import torch.distributed as dist

from sim.units import Seconds

ROUNDS = 20


def offset(rank: int, ranks: int) -> Seconds:
    """Seconds to add to this rank's clock to get the clock of rank 0. All ranks must call it together."""
    mine = torch.zeros(1, dtype=torch.float64)
    if rank == 0:
        for other in range(1, ranks):
            for _ in range(ROUNDS):
                dist.recv(mine, other)
                mine[0] = time.perf_counter()
                dist.send(mine, other)
        return 0.0
    found: list[tuple[Seconds, Seconds]] = []
    for _ in range(ROUNDS):
        sent = time.perf_counter()
        dist.send(mine, 0)
        dist.recv(mine, 0)
        received = time.perf_counter()
        found.append((received - sent, float(mine[0]) - (sent + received) / 2))
    return min(found)[1]
